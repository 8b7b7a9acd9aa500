#include "tests/support/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <stdexcept>

#include "tests/support/parallel.hpp"

// The two inner loops are worth the wider registers where the compiler can choose them at run time. Not under
// a sanitizer: it is not yet set up when the choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define FA_TEST_WIDE __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define FA_TEST_WIDE
#endif

namespace fa::test {
namespace {

std::uint64_t mix(std::uint64_t z) {  // splitmix64's finaliser
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Element `index` of a stream of unit normals. A function of its arguments alone, so that threads fill in
/// any order. The sum of twelve uniforms of 21 bits, in integers: log and cos differ between platforms in the
/// last bit, and a seed must mean the same data everywhere. Unit variance, |x| < 6.
float unit_normal(std::uint64_t stream, std::int64_t index) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u, kField = (std::uint64_t{1} << 21) - 1;
  std::uint64_t sum = 0;
  for (std::uint64_t word = 0; word < 4; ++word) {
    const std::uint64_t bits = mix(stream + (4 * static_cast<std::uint64_t>(index) + word + 1) * kGolden);
    sum += (bits & kField) + ((bits >> 21) & kField) + ((bits >> 42) & kField);
  }
  // Twelve means of (2^21 - 1) / 2 away, in halves so that it is a whole number.
  const std::int64_t halves = 2 * static_cast<std::int64_t>(sum) - 12 * static_cast<std::int64_t>(kField);
  return static_cast<float>(halves) * 0x1p-22f;
}

/// About how many additions a query head's products and softmax take.
double operations(const Problem& p) {
  return static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.D + p.Dv + 64);
}

void fill_normal(std::vector<float>& values, std::uint64_t stream, float factor, Dtype dtype) {
  constexpr std::int64_t kChunk = 1 << 16;
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for((count + kChunk - 1) / kChunk, 64.0 * static_cast<double>(count), [&](std::int64_t chunk) {
    for (std::int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      values[static_cast<std::size_t>(i)] = round_to(dtype, unit_normal(stream, i) * factor);
    }
  });
}

/// `count` copies of `slice`, one after another.
std::vector<float> repeat(const std::vector<float>& slice, std::size_t count) {
  std::vector<float> all;
  all.reserve(slice.size() * count);
  for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), slice.begin(), slice.end());
  return all;
}

std::size_t product(std::initializer_list<std::int64_t> sizes) {
  std::size_t result = 1;
  for (const std::int64_t size : sizes) result *= static_cast<std::size_t>(size);
  return result;
}

constexpr std::int64_t kKeys = 64;  // keys that are converted and multiplied at a time

/// y[0, n) += sum over t of x[t] * a[t][0, n), in the order of t; a's rows lie `pitch` apart. Both products
/// of attention: y = scores, a = K^T, t = feature; and y = output row, a = V, t = key.
template <class Real>
[[gnu::always_inline]] inline void accumulate_rows(Real* __restrict y, std::int64_t n,
                                                   const Real* __restrict x, const Real* __restrict a,
                                                   std::int64_t pitch, std::int64_t terms) {
  std::int64_t t = 0;
  for (; t + 4 <= terms; t += 4) {
    const Real x0 = x[t], x1 = x[t + 1], x2 = x[t + 2], x3 = x[t + 3];
    const Real *a0 = a + t * pitch, *a1 = a0 + pitch, *a2 = a1 + pitch, *a3 = a2 + pitch;
    for (std::int64_t j = 0; j < n; ++j) {
      y[j] = (((y[j] + x0 * a0[j]) + x1 * a1[j]) + x2 * a2[j]) + x3 * a3[j];
    }
  }
  for (; t < terms; ++t) {
    for (std::int64_t j = 0; j < n; ++j) y[j] += x[t] * a[t * pitch + j];
  }
}

FA_TEST_WIDE void accumulate(double* __restrict y, std::int64_t n, const double* __restrict x,
                             const double* __restrict a, std::int64_t pitch, std::int64_t terms) {
  accumulate_rows(y, n, x, a, pitch, terms);
}

FA_TEST_WIDE void accumulate(float* __restrict y, std::int64_t n, const float* __restrict x,
                             const float* __restrict a, std::int64_t pitch, std::int64_t terms) {
  accumulate_rows(y, n, x, a, pitch, terms);
}

/// Attention in three passes over blocks of rows of one head: scores, softmax, product. Real is the type of
/// all arithmetic; `p_dtype` that to which the exponentials are rounded before they meet V.
template <class Real>
class ThreePass {
 public:
  ThreePass(const Problem& problem, const Inputs& inputs, Dtype p_dtype)
      : problem_(problem), in_(inputs), p_dtype_(p_dtype) {
    const Problem& p = problem;
    if (p.Hk < 1 || p.H % p.Hk != 0) throw std::invalid_argument("oracle: Hk must divide H");
    if (in_.q.size() != product({p.B, p.H, p.M, p.D}) || in_.k.size() != product({p.B, p.Hk, p.N, p.D}) ||
        in_.v.size() != product({p.B, p.Hk, p.N, p.Dv})) {
      throw std::invalid_argument("oracle: the inputs are not of the problem's sizes");
    }
    scale_ = p.scale ? static_cast<Real>(*p.scale) : Real{1} / std::sqrt(static_cast<Real>(p.D));
    block_rows_ = std::clamp<std::int64_t>((1 << 22) / std::max<std::int64_t>(p.N, 1), 1, 64);
  }

  Outputs<Real> run() {
    const Problem& p = problem_;
    Outputs<Real> result;
    result.out.assign(product({p.B, p.H, p.M, p.Dv}), Real{0});
    result.lse.assign(product({p.B, p.H, p.M}), -std::numeric_limits<Real>::infinity());
    const std::int64_t blocks = (p.M + block_rows_ - 1) / block_rows_;
    parallel_for(p.B * p.H * blocks, operations(p) * static_cast<double>(p.B * p.H), [&](std::int64_t task) {
      thread_local Scratch scratch;
      const std::int64_t head = task / blocks, row = task % blocks * block_rows_;
      rows(head, row, std::min(row + block_rows_, p.M), scratch, result);
    });
    return result;
  }

 private:
  struct Scratch {
    std::vector<Real> q;         // [rows, D]
    std::vector<Real> kt;        // [D, kKeys], K transposed
    std::vector<Real> v;         // [kKeys, Dv]
    std::vector<Real> scores;    // [rows, span]: S, then P
    std::vector<Real> sums;      // [rows]: l
    std::vector<KeyRange> keys;  // [rows]
  };

  /// Rows [begin, end) of query head `head` of all B * H.
  void rows(std::int64_t head, std::int64_t begin, std::int64_t end, Scratch& scratch,
            Outputs<Real>& result) {
    const Problem& p = problem_;
    const std::int64_t kv_head = head / p.H * p.Hk + head % p.H / (p.H / p.Hk);
    const float* k = in_.k.data() + kv_head * p.N * p.D;   // [N, D]
    const float* v = in_.v.data() + kv_head * p.N * p.Dv;  // [N, Dv]
    const float* q = in_.q.data() + (head * p.M + begin) * p.D;
    Real* out = result.out.data() + (head * p.M + begin) * p.Dv;
    Real* lse = result.lse.data() + head * p.M + begin;
    const std::int64_t count = end - begin;

    scratch.keys.clear();
    std::int64_t first = p.N, last = 0;  // keys that any of the rows sees
    for (std::int64_t i = begin; i < end; ++i) {
      const KeyRange range = visible_keys(p, i);
      scratch.keys.push_back(range);
      if (range.first == range.last) continue;
      first = std::min(first, range.first);
      last = std::max(last, range.last);
    }
    if (first >= last) return;  // all empty: O = 0 and LSE = -infinity are there already

    const std::int64_t span = (last - first + kKeys - 1) / kKeys * kKeys;
    scratch.q.assign(q, q + count * p.D);
    scratch.scores.assign(product({count, span}), Real{0});
    scratch.kt.resize(product({p.D, kKeys}));
    scratch.v.resize(product({kKeys, p.Dv}));

    for (std::int64_t j = first; j < last; j += kKeys) {
      const std::int64_t keys = std::min(kKeys, last - j);
      transpose(k + j * p.D, keys, scratch.kt);
      for (std::int64_t r = 0; r < count; ++r) {
        if (!meets(scratch.keys[static_cast<std::size_t>(r)], j)) continue;
        accumulate(scratch.scores.data() + r * span + (j - first), kKeys, scratch.q.data() + r * p.D,
                   scratch.kt.data(), kKeys, p.D);
      }
    }

    scratch.sums.resize(static_cast<std::size_t>(count));
    for (std::int64_t r = 0; r < count; ++r) {
      const KeyRange range = scratch.keys[static_cast<std::size_t>(r)];
      if (range.first == range.last) continue;
      Real* scores = scratch.scores.data() + r * span + (range.first - first);
      scratch.sums[static_cast<std::size_t>(r)] = softmax(scores, range.last - range.first, lse[r]);
    }

    for (std::int64_t j = first; j < last; j += kKeys) {
      const std::int64_t keys = std::min(kKeys, last - j);
      std::copy(v + j * p.Dv, v + (j + keys) * p.Dv, scratch.v.begin());
      for (std::int64_t r = 0; r < count; ++r) {
        const KeyRange range = scratch.keys[static_cast<std::size_t>(r)];
        const std::int64_t from = std::max(range.first, j), to = std::min(range.last, j + keys);
        if (from >= to) continue;
        accumulate(out + r * p.Dv, p.Dv, scratch.scores.data() + r * span + (from - first),
                   scratch.v.data() + (from - j) * p.Dv, p.Dv, to - from);
      }
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const KeyRange range = scratch.keys[static_cast<std::size_t>(r)];
      if (range.first == range.last) continue;
      for (std::int64_t d = 0; d < p.Dv; ++d) out[r * p.Dv + d] /= scratch.sums[static_cast<std::size_t>(r)];
    }
  }

  static bool meets(KeyRange range, std::int64_t block) {
    return range.first < block + kKeys && range.last > block;
  }

  /// kt[d][j] = k[j][d]. Columns past `keys` keep what they had: their scores are never read.
  void transpose(const float* k, std::int64_t keys, std::vector<Real>& kt) const {
    for (std::int64_t d = 0; d < problem_.D; ++d) {
      Real* row = kt.data() + d * kKeys;
      for (std::int64_t j = 0; j < keys; ++j) row[j] = k[j * problem_.D + d];
    }
  }

  /// Turns q.k of the visible keys into P = exp(S - max), rounded to p_dtype; returns the sum l of the
  /// unrounded P. A NaN or an infinity among the scores makes NaN of the row, as IEEE has it.
  Real softmax(Real* scores, std::int64_t keys, Real& lse) const {
    Real max = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      scores[j] *= scale_;
      if (scores[j] > max) max = scores[j];
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      const Real p = std::exp(scores[j] - max);
      sum += p;
      scores[j] =
          p_dtype_ == Dtype::float32 ? p : static_cast<Real>(round_to(p_dtype_, static_cast<float>(p)));
    }
    lse = max + std::log(sum);
    return sum;
  }

  const Problem& problem_;
  const Inputs& in_;
  Dtype p_dtype_;  // float32: not rounded
  Real scale_;
  std::int64_t block_rows_;
};

/// Explicit backward attention: P and dS of one query head at a time, written out and read back.
template <class Real>
class ExplicitBackward {
 public:
  /// `t`: the type that P and dS are rounded to. `rounded`: P from inputs.lse, Delta from inputs.out; else
  /// both from the scores.
  ExplicitBackward(const Problem& problem, const BackwardInputs& inputs, Dtype t, bool rounded)
      : p_(problem), in_(inputs), t_(t), rounded_(rounded) {
    if (p_.Hk < 1 || p_.H % p_.Hk != 0) throw std::invalid_argument("oracle: Hk must divide H");
    if (in_.in.q.size() != product({p_.B, p_.H, p_.M, p_.D}) ||
        in_.in.k.size() != product({p_.B, p_.Hk, p_.N, p_.D}) ||
        in_.in.v.size() != product({p_.B, p_.Hk, p_.N, p_.Dv}) ||
        in_.dout.size() != product({p_.B, p_.H, p_.M, p_.Dv}) ||
        (rounded && (in_.out.size() != in_.dout.size() || in_.lse.size() != product({p_.B, p_.H, p_.M})))) {
      throw std::invalid_argument("oracle: the inputs are not of the problem's sizes");
    }
    scale_ = p_.scale ? static_cast<Real>(*p_.scale) : Real{1} / std::sqrt(static_cast<Real>(p_.D));
  }

  Gradients<Real> run(Magnitudes* magnitudes) {
    Gradients<Real> result;
    result.dq.assign(in_.in.q.size(), Real{0});
    result.dk.assign(in_.in.k.size(), Real{0});
    result.dv.assign(in_.in.v.size(), Real{0});
    if (magnitudes != nullptr) {
      magnitudes->dq.assign(product({p_.B, p_.H, p_.M}), 0.0);
      magnitudes->dk.assign(product({p_.B, p_.Hk, p_.N}), 0.0);
      magnitudes->dv.assign(product({p_.B, p_.Hk, p_.N}), 0.0);
    }
    if (p_.B == 0 || p_.M == 0 || p_.N == 0) return result;
    // Threads share one key head's rows, or, where there are many small ones, take a key head each.
    const std::int64_t heads = p_.B * p_.Hk;
    if (heads >= 8) {
      parallel_for(heads, 3 * operations(p_) * static_cast<double>(p_.B * p_.H),
                   [&](std::int64_t head) { key_head(head, result, magnitudes, false); });
    } else {
      for (std::int64_t head = 0; head < heads; ++head) key_head(head, result, magnitudes, true);
    }
    if (magnitudes != nullptr) {
      for (std::vector<double>* squares : {&magnitudes->dq, &magnitudes->dk, &magnitudes->dv}) {
        for (double& x : *squares) x = std::sqrt(x);
      }
    }
    return result;
  }

 private:
  struct Scratch {
    std::vector<Real> k, v;     // [N, D], [N, Dv]
    std::vector<Real> kt, vt;   // [D, N], [Dv, N]
    std::vector<Real> q, dout;  // [M, D], [M, Dv]: of one query head
    std::vector<Real> p, ds;    // [M, N]: P, dS
  };

  template <class Work>
  void for_each(std::int64_t count, bool parallel, const Work& work) const {
    if (parallel) {
      parallel_for(count, operations(p_), work);
    } else {
      for (std::int64_t i = 0; i < count; ++i) work(i);
    }
  }

  static std::vector<Real> transposed(const std::vector<Real>& rows, std::int64_t count,
                                      std::int64_t features) {
    std::vector<Real> result(rows.size());
    for (std::int64_t j = 0; j < count; ++j) {
      for (std::int64_t d = 0; d < features; ++d) {
        result[static_cast<std::size_t>(d * count + j)] = rows[static_cast<std::size_t>(j * features + d)];
      }
    }
    return result;
  }

  Real round(Real x) const {
    return t_ == Dtype::float32 ? x : static_cast<Real>(round_to(t_, static_cast<float>(x)));
  }

  /// Key head `kv` of all B Hk.
  void key_head(std::int64_t kv, Gradients<Real>& result, Magnitudes* magnitudes, bool parallel) {
    const std::int64_t M = p_.M, N = p_.N, D = p_.D, Dv = p_.Dv, group = p_.H / p_.Hk;
    Scratch s;
    s.k.assign(in_.in.k.begin() + kv * N * D, in_.in.k.begin() + (kv + 1) * N * D);
    s.v.assign(in_.in.v.begin() + kv * N * Dv, in_.in.v.begin() + (kv + 1) * N * Dv);
    s.kt = transposed(s.k, N, D);
    s.vt = transposed(s.v, N, Dv);
    s.p.resize(product({M, N}));
    s.ds.resize(product({M, N}));
    for (std::int64_t g = 0; g < group; ++g) {
      const std::int64_t head = kv / p_.Hk * p_.H + kv % p_.Hk * group + g;
      s.q.assign(in_.in.q.begin() + head * M * D, in_.in.q.begin() + (head + 1) * M * D);
      s.dout.assign(in_.dout.begin() + head * M * Dv, in_.dout.begin() + (head + 1) * M * Dv);
      for_each(M, parallel, [&](std::int64_t i) { row(head, i, s, result); });
      for_each(N, parallel, [&](std::int64_t j) { column(kv, j, s, result); });
      if (magnitudes != nullptr) add_magnitudes(head, kv, s, *magnitudes);
    }
  }

  /// P and dS of query i, and its dQ.
  void row(std::int64_t head, std::int64_t i, Scratch& s, Gradients<Real>& result) {
    const std::int64_t N = p_.N, D = p_.D, Dv = p_.Dv;
    Real* const p = s.p.data() + i * N;
    Real* const ds = s.ds.data() + i * N;
    std::fill(p, p + N, Real{0});
    std::fill(ds, ds + N, Real{0});
    const KeyRange keys = visible_keys(p_, i);
    const std::int64_t count = keys.last - keys.first;
    if (count == 0) return;
    Real* const weights = p + keys.first;
    Real* const gradients = ds + keys.first;
    accumulate(weights, count, s.q.data() + i * D, s.kt.data() + keys.first, N, D);
    accumulate(gradients, count, s.dout.data() + i * Dv, s.vt.data() + keys.first, N, Dv);

    Real lse, delta = 0;
    for (std::int64_t j = 0; j < count; ++j) weights[j] *= scale_;
    if (rounded_) {
      lse = static_cast<Real>(in_.lse[static_cast<std::size_t>(head * p_.M + i)]);
      const float* const out = in_.out.data() + (head * p_.M + i) * Dv;
      for (std::int64_t d = 0; d < Dv; ++d) delta += s.dout[static_cast<std::size_t>(i * Dv + d)] * out[d];
    } else {
      const Real max = *std::max_element(weights, weights + count);
      Real sum = 0;
      for (std::int64_t j = 0; j < count; ++j) sum += std::exp(weights[j] - max);
      lse = max + std::log(sum);
    }
    for (std::int64_t j = 0; j < count; ++j) weights[j] = std::exp(weights[j] - lse);
    if (!rounded_) {
      for (std::int64_t j = 0; j < count; ++j) delta += weights[j] * gradients[j];
    }
    for (std::int64_t j = 0; j < count; ++j) {
      gradients[j] = round(weights[j] * (gradients[j] - delta));
      weights[j] = round(weights[j]);
    }
    Real* const dq = result.dq.data() + (head * p_.M + i) * D;
    accumulate(dq, D, gradients, s.k.data() + keys.first * D, D, count);
    for (std::int64_t d = 0; d < D; ++d) dq[d] *= scale_;
  }

  /// Adds one query head's part to dK and dV of key j.
  void column(std::int64_t kv, std::int64_t j, const Scratch& s, Gradients<Real>& result) {
    const std::int64_t M = p_.M, N = p_.N, D = p_.D, Dv = p_.Dv;
    std::vector<Real> p(static_cast<std::size_t>(M)), ds(p.size());
    for (std::int64_t i = 0; i < M; ++i) {
      p[static_cast<std::size_t>(i)] = s.p[static_cast<std::size_t>(i * N + j)];
      ds[static_cast<std::size_t>(i)] = scale_ * s.ds[static_cast<std::size_t>(i * N + j)];
    }
    accumulate(result.dv.data() + (kv * N + j) * Dv, Dv, p.data(), s.dout.data(), Dv, M);
    accumulate(result.dk.data() + (kv * N + j) * D, D, ds.data(), s.q.data(), D, M);
  }

  void add_magnitudes(std::int64_t head, std::int64_t kv, const Scratch& s, Magnitudes& to) const {
    const auto largest = [](const std::vector<Real>& rows, std::int64_t row, std::int64_t features) {
      double result = 0;
      for (std::int64_t d = 0; d < features; ++d) {
        const double x = static_cast<double>(rows[static_cast<std::size_t>(row * features + d)]);
        result = std::max(result, std::fabs(x));
      }
      return result;
    };
    const auto norm = [](const std::vector<Real>& rows, std::int64_t row, std::int64_t features) {
      double squares = 0;
      for (std::int64_t d = 0; d < features; ++d) {
        const double x = static_cast<double>(rows[static_cast<std::size_t>(row * features + d)]);
        squares += x * x;
      }
      return std::sqrt(squares);
    };
    const auto add_square = [](double& sum, double x) { sum += x * x; };
    const std::int64_t M = p_.M, N = p_.N;
    const double scale = std::fabs(static_cast<double>(scale_));
    std::vector<double> largest_k, norm_v;
    for (std::int64_t j = 0; j < N; ++j) {
      largest_k.push_back(largest(s.k, j, p_.D));
      norm_v.push_back(norm(s.v, j, p_.Dv));
    }
    for (std::int64_t i = 0; i < M; ++i) {
      const double largest_q = largest(s.q, i, p_.D), largest_dout = largest(s.dout, i, p_.Dv);
      const double norm_dout = norm(s.dout, i, p_.Dv);
      for (std::int64_t j = 0; j < N; ++j) {
        const double p = static_cast<double>(s.p[static_cast<std::size_t>(i * N + j)]);
        const double ds = scale * p * norm_dout * norm_v[static_cast<std::size_t>(j)];
        add_square(to.dq[static_cast<std::size_t>(head * M + i)],
                   ds * largest_k[static_cast<std::size_t>(j)]);
        add_square(to.dk[static_cast<std::size_t>(kv * N + j)], ds * largest_q);
        add_square(to.dv[static_cast<std::size_t>(kv * N + j)], p * largest_dout);
      }
    }
  }

  const Problem& p_;
  const BackwardInputs& in_;
  Dtype t_;
  bool rounded_;
  Real scale_;
};

}  // namespace

float round_to(Dtype dtype, float x) {
  if (dtype == Dtype::float32 || !std::isfinite(x)) return x;
  const bool is_half = dtype == Dtype::float16;
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= 0x7f800000u;
  float power;  // the power of two at or below |x|, or that of the dtype's least normal
  std::memcpy(&power, &bits, sizeof power);
  power = std::max(power, is_half ? 0x1p-14f : 0x1p-126f);
  // The last place kept of a double this large is the last place of x in the dtype: the addition rounds
  // there.
  const double magic = static_cast<double>(power) * (is_half ? 0x1p42 : 0x1p45);
  const double rounded = (std::fabs(static_cast<double>(x)) + magic) - magic;
  const double largest = is_half ? 65504.0 : 0x1.fep127;
  const float result =
      rounded > largest ? std::numeric_limits<float>::infinity() : static_cast<float>(rounded);
  return std::copysign(result, x);
}

Inputs make_inputs(const Problem& problem) {
  const Problem& p = problem;
  const auto stream = [&p](std::uint64_t tensor) { return mix(mix(p.seed) + tensor); };
  const float factor = p.data == Data::large ? 30.0f : 1.0f;
  const bool broadcast = p.layout == Layout::broadcast;
  const std::int64_t slices = broadcast ? 1 : p.B * p.Hk;  // of K and V
  const std::size_t copies = broadcast ? product({p.B, p.Hk}) : 1;

  Inputs in;
  in.q.assign(product({p.B, p.H, p.M, p.D}), 0.0f);
  if (p.data != Data::zero_q) fill_normal(in.q, stream(1), factor, p.dtype);
  in.k.resize(product({slices, p.N, p.D}));
  fill_normal(in.k, stream(2), factor, p.dtype);
  in.v.resize(product({slices, p.N, p.Dv}));
  fill_normal(in.v, stream(3), 1.0f, p.dtype);
  if (broadcast) {
    in.k = repeat(in.k, copies);
    in.v = repeat(in.v, copies);
  }
  return in;
}

Outputs<double> oracle_forward(const Problem& problem, const Inputs& inputs) {
  return ThreePass<double>(problem, inputs, Dtype::float32).run();
}

Outputs<float> yardstick_forward(const Problem& problem, const Inputs& inputs) {
  Outputs<float> result = ThreePass<float>(problem, inputs, problem.dtype).run();
  for (float& x : result.out) x = round_to(problem.out_dtype(), x);
  return result;
}

BackwardInputs make_backward_inputs(const Problem& problem) {
  return make_backward_inputs(problem, make_inputs(problem));
}

BackwardInputs make_backward_inputs(const Problem& problem, const Inputs& in) {
  const Problem& p = problem;
  BackwardInputs all;
  all.in = in;
  const Outputs<double> forward = oracle_forward(p, in);
  for (const double x : forward.out) all.out.push_back(round_to(p.dtype, static_cast<float>(x)));
  all.lse.assign(forward.lse.begin(), forward.lse.end());
  const std::size_t rows = product({p.B, p.H, p.M});
  all.dout.resize(p.dout_broadcast ? product({p.Dv}) : rows * product({p.Dv}));
  fill_normal(all.dout, mix(mix(p.seed) + 4), 1.0f, p.dtype);
  if (p.dout_broadcast) all.dout = repeat(all.dout, rows);
  return all;
}

Gradients<double> oracle_backward(const Problem& problem, const BackwardInputs& inputs,
                                  Magnitudes* magnitudes) {
  return ExplicitBackward<double>(problem, inputs, Dtype::float32, false).run(magnitudes);
}

Gradients<float> yardstick_backward(const Problem& problem, const BackwardInputs& inputs) {
  Gradients<float> result = ExplicitBackward<float>(problem, inputs, problem.dtype, true).run(nullptr);
  for (std::vector<float>* values : {&result.dq, &result.dk, &result.dv}) {
    for (float& x : *values) x = round_to(problem.gradient_dtype(), x);
  }
  return result;
}

}  // namespace fa::test
