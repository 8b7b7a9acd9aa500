/// Probes whose results are known exactly, and repeatability to the last bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::size_t count(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::size_t>(a * b * c * d);
}

// Keys that row i sees, counted one by one.
std::int64_t visible(const Problem& p, std::int64_t i) {
  const std::int64_t at = p.mask.alignment == Alignment::bottom_right ? i + p.N - p.M : i;
  std::int64_t n = 0;
  for (std::int64_t j = 0; j < p.N; ++j) {
    n += (p.mask.left < 0 || j >= at - p.mask.left) && (p.mask.right < 0 || j <= at + p.mask.right);
  }
  return n;
}

// LSE may be computed through log2: a few units in the last place.
float lse_tolerance(double want) {
  return static_cast<float>(4e-7 * std::max(1.0, std::fabs(want)));
}

// What O may be off by, relatively, where every sum is exact. Nothing where O is divided by l once, at the
// end. V0 divides P before the second product and V1 divides O at every key tile, each time with a rounding.
float division_slack(const Row& row) {
  return row.version == Version::V0 || row.version == Version::V1 ? 4e-6f : 0.0f;
}

class Exact : public RowSuite {};

// Q = 0: every seen key weighs the same, so LSE = ln(count), whatever K holds.
TEST_P(Exact, ZeroQueriesCountTheKeys) {
  for (const char* line : {"B2 H4/2 M65 N130 D64", "S100 D64 causal", "M40 N90 D64 causal-top-left",
                           "S97 D64 window:5,3", "M130 N40 D64 causal", "M33 N257 D128 window:64,0",
                           "M7 N1000 D64", "M50 N20 D32 window-top-left:3,0"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    Inputs inputs = make_inputs(p);
    std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    for (std::size_t r = 0; r < got->lse.size(); ++r) {
      const std::int64_t n = visible(p, static_cast<std::int64_t>(r) % p.M);
      if (n == 0) {
        ASSERT_EQ(got->lse[r], -kInfinity) << "row " << r;
      } else {
        const double want = std::log(static_cast<double>(n));
        ASSERT_NEAR(got->lse[r], want, lse_tolerance(want)) << "row " << r << " sees " << n << " keys";
      }
    }
  }
}

// Q = 0 and V of small integers: every sum is exact in fp32, and so is the mean over a power of two.
TEST_P(Exact, ZeroQueriesAverageTheValues) {
  for (const char* line : {"B2 H2 M33 N64 D64", "M5 N256 D64", "H6/2 M70 N128 D128", "M3 N1 D64",
                           "M65 N2 D32", "M130 N1024 D64", "S97 D64 window:15,0", "M70 N90 D64 window:3,4"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    Inputs inputs = make_inputs(p);
    std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
    for (std::size_t i = 0; i < inputs.v.size(); ++i) {
      inputs.v[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 7 & 15u) - 8) * 4.0f;
    }
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    for (std::int64_t b = 0; b < p.B; ++b)
      for (std::int64_t h = 0; h < p.H; ++h)
        for (std::int64_t i = 0; i < p.M; ++i) {
          const std::int64_t at = i + p.N - p.M;
          const std::int64_t first = p.mask.left < 0 ? 0 : std::max<std::int64_t>(0, at - p.mask.left);
          const std::int64_t last = p.mask.right < 0 ? p.N - 1 : std::min(p.N - 1, at + p.mask.right);
          const std::int64_t n = last - first + 1;
          if (n < 1 || (n & (n - 1)) != 0) continue;
          for (std::int64_t d = 0; d < p.Dv; ++d) {
            double sum = 0;
            for (std::int64_t j = first; j <= last; ++j) {
              sum += static_cast<double>(
                  inputs.v[static_cast<std::size_t>(((b * p.Hk + h / (p.H / p.Hk)) * p.N + j) * p.Dv + d)]);
            }
            const float want = round_to(p.out_dtype(), static_cast<float>(sum / static_cast<double>(n)));
            ASSERT_NEAR(got->out[static_cast<std::size_t>(((b * p.H + h) * p.M + i) * p.Dv + d)], want,
                        32 * division_slack(row()))  // |V| is at most 32
                << "at [" << b << ", " << h << ", " << i << ", " << d << "]";
          }
        }
  }
}

// One visible key has weight 1: O is that row of V, bit for bit, and LSE is its logit.
TEST_P(Exact, OneKeyGivesItsValue) {
  for (const char* line :
       {"B3 H4/2 M1 N1 D64", "B2 H2 M17 N1 D64", "S130 D64 window:0,0", "M40 N90 D64 window:0,0",
        "M90 N40 D32 window-top-left:0,0", "B2 H6/3 S33 D128 window:0,0", "M65 N1 D256"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const Inputs inputs = make_inputs(p);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    for (std::int64_t b = 0; b < p.B; ++b)
      for (std::int64_t h = 0; h < p.H; ++h)
        for (std::int64_t i = 0; i < p.M; ++i) {
          const bool window = p.mask.left == 0;
          const std::int64_t j = !window ? 0 : p.mask.alignment == Alignment::top_left ? i : i + p.N - p.M;
          const std::size_t at = static_cast<std::size_t>((b * p.H + h) * p.M + i);
          if (j < 0 || j >= p.N) {
            ASSERT_EQ(got->lse[at], -kInfinity);
            continue;
          }
          const std::size_t key = static_cast<std::size_t>((b * p.Hk + h / (p.H / p.Hk)) * p.N + j);
          const std::size_t Dv = static_cast<std::size_t>(p.Dv), D = static_cast<std::size_t>(p.D);
          for (std::size_t d = 0; d < Dv; ++d) {
            ASSERT_EQ(got->out[at * Dv + d], inputs.v[key * Dv + d])
                << "at [" << b << ", " << h << ", " << i << ", " << d << "]";
          }
          double logit = 0;
          for (std::size_t d = 0; d < D; ++d) {
            logit += static_cast<double>(inputs.q[at * D + d]) * static_cast<double>(inputs.k[key * D + d]);
          }
          logit /= std::sqrt(static_cast<double>(p.D));
          ASSERT_NEAR(got->lse[at], logit, 1e-5 + 2e-6 * std::fabs(logit));
        }
  }
}

// Equal weights and a constant V: O is the constant, exactly, for any count.
TEST_P(Exact, ConstantValuesWithEqualWeights) {
  for (const char* line :
       {"B2 H2 M33 N77 D64", "S100 D64 causal", "M40 N1000 D64", "H4/2 M70 N33 D32 window:9,2"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    Inputs inputs = make_inputs(p);
    std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
    for (const float constant : {1.0f, -2.0f, 0.375f, 0.0f}) {
      std::fill(inputs.v.begin(), inputs.v.end(), constant);
      const auto got = run_row(p, inputs, row());
      if (!got) break;
      for (std::size_t i = 0; i < got->out.size(); ++i) {
        const std::int64_t r = static_cast<std::int64_t>(i) / p.Dv % p.M;
        // n c / n: exact where it is divided, one rounding of 1 / n more where it is multiplied by the
        // inverse.
        const float want = visible(p, r) == 0 ? 0.0f : constant;
        const float one_rounding = size_of(p.out_dtype()) == 2 ? 0.0f : 1.2e-7f;
        const float slack = std::fabs(want) * std::max(one_rounding, division_slack(row()));
        ASSERT_NEAR(got->out[i], want, slack) << "element " << i;
      }
    }
  }
}

// How far the mean of `keys` equal values may be off for the order of its sum: 1e-3, but for kernels that add
// to one running O in registers.
void expect_mean(const std::string& kernel, double got, double value, std::int64_t keys, double rounding) {
  SCOPED_TRACE("by " + kernel);
  double below = 1e-3, above = 1e-3;
  if (kernel.starts_with("v3_") || kernel.starts_with("v4_")) {
    below = above = 3.5e-3;  // one fp32 sum, key by key: 2.5e-3 (3.3e-3 for the bf16 next to 0.3)
  }
  if (kernel.starts_with("v7_") || kernel.starts_with("v8_")) {
    // One sum on tensor cores, 16 keys a step: each step loses half a unit of the sum on average, towards
    // zero.
    below = 1.2 * value * static_cast<double>(keys) / 16 * 0x1p-24;
  }
  EXPECT_GE(got, value - below - rounding);
  EXPECT_LE(got, value + above + rounding);
}

// A sum over millions of keys keeps what each of them adds. Key by key into one fp32 sum it would be 2.5e-3
// off, in blocks of 32 keys 4e-4.
TEST_P(Exact, MillionsOfKeysKeepTheMean) {
  const Problem p = problem("M1 N4194304 D4");
  Inputs inputs{std::vector<float>(count(1, 1, 1, 4), 0.0f), std::vector<float>(count(1, 1, p.N, 4), 1.0f),
                std::vector<float>(count(1, 1, p.N, 4), round_to(p.dtype, 0.3f))};
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
  const double want = static_cast<double>(inputs.v[0]);
  const double unit = size_of(p.out_dtype()) == 4 ? 0 : p.out_dtype() == Dtype::float16 ? 0x1p-12 : 0x1p-9;
  const std::string kernel = explain_problem(p, row()).kernel;
  for (const float x : got->out) expect_mean(kernel, static_cast<double>(x), want, p.N, unit);
  EXPECT_NEAR(got->lse[0], std::log(4194304.0), 1e-5);
}

// The same at D64, with one key and one value for all: stride 0 over the keys, or, as V8 does not take that,
// rows that overlap.
TEST_P(Exact, MillionsOfEqualKeysOfD64KeepTheMean) {
  if (on_host())
    GTEST_SKIP() << "for rows whose tiles hold D64 alone; the host runs MillionsOfKeysKeepTheMean";
  constexpr std::int64_t kKeys = 4194304, kD = 64;
  const std::int64_t step = row().version == Version::V8 ? 8 : 0;
  Array q(row().side, row().dtype, {1, 1, 1, kD}),
      k(row().side, row().dtype, {1, 1, kKeys, kD}, {0, 0, step}),
      v(row().side, row().dtype, {1, 1, kKeys, kD}, {0, 0, step}),
      out(row().side, row().dtype, {1, 1, 1, kD});
  Memory lse(row().side, sizeof(float));
  q.fill_value(0), k.fill_value(1), v.fill_value(0.3f), out.fill(0xff);
  fa_forward_args args = make_args(q, k, v, out);
  args.lse = static_cast<float*>(lse.data());
  const fa_status status = run_args(args, row());
  if (status == FA_UNSUPPORTED) GTEST_SKIP() << "the row rejects it: " << fa_last_error();
  ASSERT_EQ(status, FA_OK) << fa_last_error();
  const double want = static_cast<double>(round_to(row().dtype, 0.3f));
  const double unit = row().dtype == Dtype::float32 ? 0 : row().dtype == Dtype::float16 ? 0x1p-12 : 0x1p-9;
  const std::string kernel = kernel_of(args, row());
  for (const float x : out.get()) expect_mean(kernel, static_cast<double>(x), want, kKeys, unit);
  float sum = 0;
  lse.read(0, &sum, sizeof sum);
  EXPECT_NEAR(sum, std::log(4194304.0), 1e-5);
}

// Any weights and a constant V: the constant, to the rounding of P, and in fp32 of the sums of up to a
// thousand.
TEST_P(Exact, ConstantValuesWithAnyWeights) {
  const float u = row().dtype == Dtype::float32 ? 4e-6f : row().dtype == Dtype::float16 ? 0x1p-10f : 0x1p-7f;
  for (const char* line : {"B2 H2 M33 N77 D64", "S100 D64 causal", "M40 N1000 D128", "S65 D64 large"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    Inputs inputs = make_inputs(p);
    std::fill(inputs.v.begin(), inputs.v.end(), 3.0f);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    for (std::size_t i = 0; i < got->out.size(); ++i)
      ASSERT_NEAR(got->out[i], 3.0f, 3.0f * u) << "element " << i;
  }
}

// Row r of x [1, 1, rows, features].
float* row_of(std::vector<float>& x, std::int64_t features, std::int64_t r) {
  return &x[static_cast<std::size_t>(r * features)];
}

// The line's data, with scale 1 and all of Q and K zero.
Inputs inputs_without_scores(Problem& p) {
  p.scale = 1.0f;
  Inputs inputs = make_inputs(p);
  std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
  std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
  return inputs;
}

// A row's two keys in tiles far apart, the second `ahead` powers of two above the first, and all others out
// of sight: a kernel that moves its reference late has P far from 1 for the key that decides the row. O is
// that of the two weights, to its own rounding and that of the smaller P. Tiles are walked both ways.
TEST_P(Exact, AKeyFarBehindKeepsItsWeight) {
  const int bits = row().dtype == Dtype::float32 ? 24 : row().dtype == Dtype::float16 ? 11 : 8;
  for (const double ahead : {0.3, 1.7, 3.3, 5.6, 7.3, 7.9, 8.1, 13.0, 40.0}) {
    for (const bool last_is_ahead : {true, false}) {
      SCOPED_TRACE(std::to_string(ahead) + (last_is_ahead ? ", the last key" : ", the first key"));
      Problem p = problem("M5 N600 D64");
      Inputs inputs = inputs_without_scores(p);
      for (std::int64_t r = 0; r < p.M; ++r) row_of(inputs.q, p.D, r)[0] = 8.0f;
      for (std::int64_t key = 0; key < p.N; ++key) row_of(inputs.k, p.D, key)[0] = -16.0f;  // e^-128
      const std::int64_t high = last_is_ahead ? p.N - 1 : 0, low = p.N - 1 - high;
      row_of(inputs.k, p.D, low)[0] = 0.0f;
      row_of(inputs.k, p.D, high)[0] = round_to(p.dtype, static_cast<float>(ahead * std::log(2.0) / 8));
      const auto got = run_row(p, inputs, row());
      if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
      const double weight = std::exp(8.0 * static_cast<double>(row_of(inputs.k, p.D, high)[0])),
                   sum = weight + 1;
      for (std::int64_t r = 0; r < p.M; ++r) {
        ASSERT_NEAR(got->lse[static_cast<std::size_t>(r)], std::log(sum), 1e-5 + 2e-6 * std::log(sum));
        for (std::int64_t d = 0; d < p.Dv; ++d) {
          const double from_high = static_cast<double>(row_of(inputs.v, p.Dv, high)[d]),
                       from_low = static_cast<double>(row_of(inputs.v, p.Dv, low)[d]);
          const double want = (weight * from_high + from_low) / sum;
          const double half_unit = std::ldexp(1.0, std::ilogb(want) - bits);
          const double of_smaller = std::ldexp(1.0, -bits) / sum;
          const double magnitude = std::fabs(from_high) + std::fabs(from_low);
          ASSERT_NEAR(static_cast<double>(got->out[static_cast<std::size_t>(r * p.Dv + d)]), want,
                      1.05 * half_unit + (of_smaller + 4e-6) * magnitude)
              << "row " << r << ", feature " << d;
        }
      }
    }
  }
}

// Scores of 2^27, whose neighbours are 16 apart, and a tile later 16 more: R + 8 rounds to the larger score
// here.
TEST_P(Exact, ScoresBeyondTheStepOfTheReference) {
  for (const bool last_are_ahead : {true, false}) {
    SCOPED_TRACE(last_are_ahead);
    Problem p = problem("M5 N256 D64");
    Inputs inputs = inputs_without_scores(p);
    for (std::int64_t r = 0; r < p.M; ++r)
      row_of(inputs.q, p.D, r)[0] = 8192.0f, row_of(inputs.q, p.D, r)[1] = 16.0f;
    for (std::int64_t key = 0; key < p.N; ++key) {
      row_of(inputs.k, p.D, key)[0] = 16384.0f;
      row_of(inputs.k, p.D, key)[1] = (key >= p.N / 2) == last_are_ahead ? 1.0f : 0.0f;
    }
    const auto got = run_row(p, inputs, row());
    if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
    for (std::int64_t d = 0; d < p.Dv; ++d) {
      double mean = 0;  // of the keys ahead: the others weigh e^-16
      for (std::int64_t key = 0; key < p.N / 2; ++key) {
        mean += static_cast<double>(row_of(inputs.v, p.Dv, key + (last_are_ahead ? p.N / 2 : 0))[d]) * 2 /
                static_cast<double>(p.N);
      }
      for (std::int64_t r = 0; r < p.M; ++r) {
        ASSERT_NEAR(static_cast<double>(got->out[static_cast<std::size_t>(r * p.Dv + d)]), mean, 4e-3)
            << "row " << r << ", feature " << d;
      }
    }
  }
}

// A row that sees no key: O = 0 with the sign of plus, LSE = -infinity.
TEST_P(Exact, EmptyRowsAreZero) {
  for (const char* line : {"B2 H2 M100 N40 D64 causal", "M5 N0 D64", "B2 H4/2 M70 N0 D32 causal",
                           "M90 N10 D64 window:0,0", "M200 N7 D64 window-top-left:3,-1"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const auto got = run_row(p, make_inputs(p), row());
    if (!got) continue;
    int empty = 0;
    for (std::size_t r = 0; r < got->lse.size(); ++r) {
      if (visible(p, static_cast<std::int64_t>(r) % p.M) != 0) {
        ASSERT_TRUE(std::isfinite(got->lse[r])) << "row " << r;
        continue;
      }
      ++empty;
      ASSERT_EQ(got->lse[r], -kInfinity) << "row " << r;
      for (std::size_t d = 0; d < static_cast<std::size_t>(p.Dv); ++d) {
        const float o = got->out[r * static_cast<std::size_t>(p.Dv) + d];
        ASSERT_TRUE(o == 0.0f && !std::signbit(o)) << "row " << r << " column " << d << ": " << o;
      }
    }
    EXPECT_GT(empty, 0);
  }
}

// Two runs are the same bits, for any number of threads.
TEST_P(Exact, RepeatsBitForBit) {
  for (const char* line : {"B2 H4/2 M129 N257 D64 causal", "S200 D80 window:33,7", "M1 N1000 D128",
                           "B3 H2 M33 N65 D40 large", "H3 M130 N70 D64 causal"}) {
    SCOPED_TRACE(line);
    Problem p = problem(line);
    const Inputs inputs = make_inputs(p);
    const auto first = run_row(p, inputs, row());
    if (!first) continue;
    for (const int threads : {0, 1, 2, 3, 8, 0}) {
      p.threads = threads;
      const auto again = run_row(p, inputs, row());
      ASSERT_TRUE(again);
      EXPECT_EQ(bits_of(again->out), bits_of(first->out)) << threads << " threads";
      EXPECT_EQ(bits_of(again->lse), bits_of(first->lse)) << threads << " threads";
    }
  }
}

// A row of the output depends on nothing but its own query and the keys it sees: a problem cut in pieces
// gives the same bits as the whole.
TEST_P(Exact, BatchesAndHeadsAreIndependent) {
  const Problem whole = problem("B3 H4/2 M37 N83 D64 causal");
  const Inputs inputs = make_inputs(whole);
  const auto all = run_row(whole, inputs, row());
  if (!all) GTEST_SKIP() << "the row rejects " << to_string(whole);
  Problem one = whole;
  one.B = one.H = one.Hk = 1;
  const std::size_t Q = count(1, 1, whole.M, whole.D), K = count(1, 1, whole.N, whole.D),
                    M = count(1, 1, whole.M, 1);
  for (std::size_t bh = 0; bh < 12; ++bh) {
    const std::size_t kv = bh / 4 * 2 + bh % 4 / 2;
    const auto part = [](const std::vector<float>& x, std::size_t at, std::size_t n) {
      return std::vector<float>(x.begin() + static_cast<std::ptrdiff_t>(at * n),
                                x.begin() + static_cast<std::ptrdiff_t>((at + 1) * n));
    };
    const auto got =
        run_row(one, {part(inputs.q, bh, Q), part(inputs.k, kv, K), part(inputs.v, kv, K)}, row());
    if (!got) break;
    EXPECT_EQ(bits_of(got->out), bits_of(part(all->out, bh, Q))) << "slice " << bh;
    EXPECT_EQ(bits_of(got->lse), bits_of(part(all->lse, bh, M))) << "slice " << bh;
  }
}

// Two host threads at once, with problems of different sizes: each gets what it gets alone.
TEST_P(Exact, TwoHostThreadsAtOnce) {
  Problem problems[2] = {problem("B2 H4/2 S130 D64 causal threads:2"),
                         problem("H3 M70 N257 D128 window:40,9")};
  if (!takes(problems[1], row())) problems[1].D = problems[1].Dv = 64;
  std::vector<std::uint32_t> alone[2][2];
  Inputs inputs[2];
  for (int i = 0; i < 2; ++i) {
    inputs[i] = make_inputs(problems[i]);
    const auto got = run_row(problems[i], inputs[i], row());
    if (!got) GTEST_SKIP() << "the row rejects " << to_string(problems[i]);
    alone[i][0] = bits_of(got->out), alone[i][1] = bits_of(got->lse);
  }
  int differing[2] = {0, 0};
  std::string thrown[2];
  const auto repeat = [&](int i) {
    try {
      for (int round = 0; round < 10; ++round) {
        const RunResult r = run_forward(problems[i], inputs[i], row().version, row().side);
        differing[i] +=
            bits_of(r.got.out) != alone[i][0] || bits_of(r.got.lse) != alone[i][1] || !r.guard_damage.empty();
      }
    } catch (const std::exception& e) {
      thrown[i] = e.what();
    }
  };
  {
    std::thread other(repeat, 1);
    repeat(0);
    other.join();
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(differing[i], 0) << to_string(problems[i]);
    EXPECT_EQ(thrown[i], "");
  }
}

// Leaving LSE out changes no bit of O.
TEST_P(Exact, LseIsOptional) {
  Problem p = problem("B2 H4/2 M65 N130 D64 causal");
  const Inputs inputs = make_inputs(p);
  const auto with = run_row(p, inputs, row());
  if (!with) GTEST_SKIP() << "the row rejects " << to_string(p);
  p.lse = false;
  const auto without = run_row(p, inputs, row());
  ASSERT_TRUE(without);
  EXPECT_EQ(bits_of(without->out), bits_of(with->out));
}

INSTANTIATE_TEST_SUITE_P(Rows, Exact, testing::ValuesIn(forward_rows()), RowName());

}  // namespace
}  // namespace fa::test
