/// The failure cases of docs/cases.md that the dense forward call reaches, by their ids. Sizes that only a
/// device computes in reasonable time are cut on the host; what the case is about is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kSecondsPerCase = 30;

using Sizes = std::int64_t[4];

std::size_t elements(const Sizes& size) {
  return static_cast<std::size_t>(size[0] * size[1] * size[2] * size[3]);
}

std::string shape(std::int64_t B, std::int64_t H, std::int64_t Hk, std::int64_t M, std::int64_t N,
                  std::int64_t D) {
  return "B" + std::to_string(B) + " H" + std::to_string(H) + "/" + std::to_string(Hk) + " M" +
         std::to_string(M) + " N" + std::to_string(N) + " D" + std::to_string(D);
}

class Cases : public RowSuite {
 protected:
  // The problem's line with Q = 0.
  Inputs without_queries(const Problem& p) const {
    Inputs inputs = make_inputs(p);
    std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
    return inputs;
  }

  // LSE of row i of every head equals want(i).
  template <class F>
  void expect_lse(const Problem& p, const Outputs<float>& got, F want, double tolerance = 4e-6) const {
    ASSERT_EQ(got.lse.size(), static_cast<std::size_t>(p.B * p.H * p.M));
    for (std::size_t r = 0; r < got.lse.size(); ++r) {
      const double w = want(static_cast<std::int64_t>(r) % p.M);
      if (std::isinf(w)) {
        ASSERT_EQ(static_cast<double>(got.lse[r]), w) << "row " << r << " of " << to_string(p);
      } else {
        ASSERT_NEAR(got.lse[r], w, tolerance) << "row " << r << " of " << to_string(p);
      }
    }
  }
};

class CasesFp32 : public Cases {};

// ---- P01: causal alignment where M and N differ
// ---------------------------------------------------------------

TEST_P(Cases, P01_CausalMoreQueriesThanKeys) {
  int ran = 0;
  for (const char* line :
       {"H2 M2048 N1024 D128 causal", on_host() ? "H1 M512 N256 D64 causal" : "H2 M2048 N1024 D64 causal"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const Watchdog watchdog(kSecondsPerCase * 4, to_string(p));
    const Inputs inputs = make_inputs(p);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    ++ran;
    EXPECT_EQ(check_forward(p, inputs, *got), "");
    const std::size_t M = static_cast<std::size_t>(p.M), D = static_cast<std::size_t>(p.D);
    for (std::size_t r = 0; r < got->lse.size(); ++r) {
      if (r % M >= M / 2) {
        ASSERT_TRUE(std::isfinite(got->lse[r])) << "row " << r;
        continue;
      }
      ASSERT_EQ(got->lse[r], -kInfinity) << "row " << r;
      for (std::size_t d = 0; d < D; ++d) ASSERT_EQ(got->out[r * D + d], 0.0f) << "row " << r;
    }
    // N = M / 2, and row i sees keys 0 .. i - N: with Q = 0 their number is the LSE.
    Inputs counting = inputs;
    std::fill(counting.q.begin(), counting.q.end(), 0.0f);
    const auto counted = run_row(p, counting, row());
    ASSERT_TRUE(counted);
    expect_lse(p, *counted, [&](std::int64_t i) {
      return i < p.N ? -HUGE_VAL : std::log(static_cast<double>(i - p.N + 1));
    });
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

TEST_P(Cases, P01_CausalFewQueriesManyKeys) {
  int ran = 0;
  const double want[] = {4.836282, 4.844187, 4.852030};
  for (const char* line : {"H1 M3 N128 D128 causal", "H1 M3 N128 D64 causal"}) {
    const Problem p = problem(line);
    EXPECT_TRUE(check_row(p, row()) || !on_host());
    const auto got = run_row(p, without_queries(p), row());
    if (!got) continue;
    ++ran;
    expect_lse(
        p, *got, [&](std::int64_t i) { return want[i]; }, 1e-6 + 2e-6 * 4.9);
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

TEST_P(Cases, P01_BothAlignmentsBothWays) {
  for (const char* sizes : {"M300 N100", "M100 N300", "M65 N64", "M64 N65", "M1 N129", "M129 N1"}) {
    for (const char* mask : {"causal", "causal-top-left"}) {
      const Problem p = problem(std::string("H2/1 D64 ") + sizes + " " + mask);
      check_row(p, row());
      const auto got = run_row(p, without_queries(p), row());
      if (!got) continue;
      const std::int64_t shift = p.mask.alignment == Alignment::bottom_right ? p.N - p.M : 0;
      expect_lse(p, *got, [&](std::int64_t i) {
        const std::int64_t n = std::clamp<std::int64_t>(i + shift + 1, 0, p.N);
        return n == 0 ? -HUGE_VAL : std::log(static_cast<double>(n));
      });
    }
  }
}

// ---- P02: one query, one key
// ----------------------------------------------------------------------------------

TEST_P(Cases, P02_DenseOneQueryOneKey) {
  for (const char* line :
       {"H1 M1 N1 D16 causal", "H1 M1 N1 D16", "B3 H4/2 M1 N1 D32 causal", "H1 M76 N1 D32 causal",
        "H1 M1 N1 D64 causal", "B3 H4/2 M1 N1 D64", "H1 M76 N1 D64 causal"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    Inputs inputs = make_inputs(p);
    for (std::vector<float>* x : {&inputs.q, &inputs.k, &inputs.v})
      for (float& value : *x) value = round_to(p.dtype, 3 * value);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    EXPECT_EQ(check_forward(p, inputs, *got), "");
    // With one key, causal, the last row alone sees it: O = V there, bit for bit, and 0 above.
    for (std::int64_t bh = 0; bh < p.B * p.H; ++bh) {
      const std::int64_t kv = bh / p.H * p.Hk + bh % p.H / (p.H / p.Hk);
      for (std::int64_t i = 0; i < p.M; ++i)
        for (std::int64_t d = 0; d < p.D; ++d) {
          const float want = i == p.M - 1 ? inputs.v[static_cast<std::size_t>(kv * p.D + d)] : 0.0f;
          ASSERT_EQ(got->out[static_cast<std::size_t>((bh * p.M + i) * p.D + d)], want) << i << ", " << d;
        }
    }
  }
}

// ---- P03: value and base of LSE
// -------------------------------------------------------------------------------

TEST_P(Cases, P03_NoKeys) {
  for (const char* line : {"M4 N0 D64", "M4 N0 D64 causal", "B2 H4/2 M130 N0 D128 bshd",
                           "B2 H4/2 M130 N0 D64 bshd", "M4 N0 D64 window:2,2 padded"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const auto got = run_row(p, make_inputs(p), row());
    if (!got) continue;
    expect_lse(p, *got, [](std::int64_t) { return -HUGE_VAL; });
    for (const float o : got->out) ASSERT_EQ(o, 0.0f);
  }
}

TEST_P(Cases, P03_NaturalLogarithm) {
  for (const char* line : {"M3 N1600 D64", "B2 H8/2 M1 N1600 D64", "H3 M65 N1600 D128 bshd",
                           "H3 M65 N1600 D64 bshd", "H2 M5 N1600 D64 padded", "H2 M1 N1600 D64 causal"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const auto got = run_row(p, without_queries(p), row());
    if (!got) continue;
    expect_lse(
        p, *got, [](std::int64_t) { return 7.377759; }, 1e-5);
  }
}

// ---- P05: tile tails, and calls that never end
// ----------------------------------------------------------------

TEST_P(Cases, P05_ReportedTails) {
  for (const char* line :
       {"H8 S192 D16", "H8 S192 D16 causal", "H1 S250 D128", "H1 S252 D128", "H1 S250 D128 causal",
        "H8 S192 D64", "H8 S192 D64 causal", "H1 S250 D64", "H1 S252 D64", "H1 S250 D64 causal"}) {
    const Watchdog watchdog(kSecondsPerCase, line);
    check_row(problem(line), row());
  }
}

TEST_P(Cases, P05_EveryTail) {
  constexpr std::int64_t kSizes[] = {1,   2,   7,   15,  17,  63,  64,  65,  127,
                                     128, 129, 191, 192, 193, 250, 255, 256, 257};
  int taken = 0;
  for (const bool causal : {false, true}) {
    for (const std::int64_t M : kSizes) {
      for (const std::int64_t N : kSizes) {
        const std::string line = shape(1, 1, 1, M, N, row().side == Side::host ? 16 : 64) +
                                 (causal ? " causal" : "") + " seed " + std::to_string(M * 1000 + N);
        const Watchdog watchdog(kSecondsPerCase, line);
        taken += check_row(problem(line), row());
      }
    }
  }
  EXPECT_GT(taken, 0);
}

// ---- P06: head dimension
// --------------------------------------------------------------------------------------

TEST_P(Cases, P06_EveryHeadSize) {
  for (std::int64_t D = 1; D <= 257; ++D) {
    const Watchdog watchdog(kSecondsPerCase, "D" + std::to_string(D));
    check_row(problem(shape(1, 2, 1, 19, 37, D) + " causal seed " + std::to_string(D)), row());
    check_row(problem(shape(1, 1, 1, 5, 9, D) + " bshd seed " + std::to_string(D)), row());
  }
}

TEST_P(Cases, P06_ReportedHeadSizes) {
  const bool host = on_host();
  for (const char* line : {host ? "B2 H4 S300 D63" : "B2 H32 S4096 D63",
                           host ? "B3 H2 S256 D128" : "B3 H2 S2048 D128", "H8 S200 D72", "H8 S200 D104"}) {
    check_row(problem(line), row());
  }
}

// Batch c of D + 1 has ones in column c of Q and K, zeros elsewhere, and batch D zeros alone: LSE = ln N +
// scale in each of the first D, ln N in the last. A column that is not read, or read twice, shows.
TEST_P(Cases, P06_EveryColumnCounts) {
  constexpr std::int64_t kM = 3, kN = 5;
  for (std::int64_t D = 1; D <= 257; ++D) {
    const Watchdog watchdog(kSecondsPerCase, "column probe, D" + std::to_string(D));
    const Problem p = problem(shape(D + 1, 1, 1, kM, kN, D));
    const std::size_t d = static_cast<std::size_t>(D);
    Inputs inputs;
    inputs.q.assign((d + 1) * kM * d, 0.0f);
    inputs.k.assign((d + 1) * kN * d, 0.0f);
    inputs.v.assign((d + 1) * kN * d, 0.0f);
    for (std::size_t c = 0; c < d; ++c) {
      for (std::size_t i = 0; i < kM; ++i) inputs.q[(c * kM + i) * d + c] = 1.0f;
      for (std::size_t j = 0; j < kN; ++j) {
        inputs.k[(c * kN + j) * d + c] = 1.0f;
        inputs.v[(c * kN + j) * d + c] = 1.0f;
      }
    }
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    const double base = std::log(static_cast<double>(kN));
    const double bump = 1.0 / std::sqrt(static_cast<double>(D));
    for (std::size_t c = 0; c <= d; ++c) {
      for (std::size_t i = 0; i < kM; ++i) {
        ASSERT_NEAR(got->lse[c * kM + i], base + (c < d ? bump : 0.0), 2e-6) << "D" << D << ", column " << c;
        for (std::size_t e = 0; e < d; ++e) {
          ASSERT_NEAR(got->out[(c * kM + i) * d + e], c == e ? 1.0f : 0.0f, 1e-6)
              << "D" << D << ", column " << c << " of V";
        }
      }
    }
  }
}

// ---- P07: integer width
// ---------------------------------------------------------------------------------------

TEST_P(Cases, P07_ManyShortBatches) {
  int ran = 0;
  for (const char* line : {"B8300 H16 M1 N1 D128 seed 5", "B8300 H16 M1 N1 D64 seed 5"}) {
    const Problem p = problem(line);
    if (!takes(p, row())) continue;  // a stand-in runs it under its own name
    ++ran;
    const Inputs inputs = make_inputs(p);
    const auto got = run_row(p, inputs, row());
    ASSERT_TRUE(got);
    EXPECT_TRUE(bits_of(got->out) == bits_of(inputs.v)) << "one key: O = V; " << line;
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

// Batch, head or row stride of 2^30 elements: five indices reach past 2^32 elements. V of index x is x.
TEST_P(Cases, P07_FarStrides) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  constexpr std::int64_t kFew = 3, kD = 64;
  for (int dim = 0; dim < 3; ++dim) {
    for (const char* who : {"q", "k", "v", "out"}) {
      SCOPED_TRACE(std::string(who) + ", dimension " + std::to_string(dim));
      Sizes size = {2, 2, kFew, kD};
      size[dim] = 5;
      const std::int64_t compact[3] = {size[1] * size[2] * size[3], size[2] * size[3], size[3]};
      std::int64_t far[3] = {compact[0], compact[1], compact[2]};
      far[dim] = kFar;
      if (dim == 1) far[0] = size[2] * size[3];  // batches lie between the far heads
      if (dim == 2) far[0] = 2 * kD, far[1] = kD;
      const auto strides = [&](const char* name) -> const std::int64_t(&)[3] {
        return std::string(name) == who ? far : compact;
      };
      try {
        Array q(row().side, row().dtype, size, strides("q"));
        Array k(row().side, row().dtype, size, strides("k"));
        Array v(row().side, row().dtype, size, strides("v"));
        Array out(row().side, row().dtype, size, strides("out"));
        std::vector<float> zero(elements(size), 0.0f), index(elements(size));
        const auto at = [&](std::int64_t b, std::int64_t h, std::int64_t s) {
          return dim == 0 ? b : dim == 1 ? h : s;
        };
        std::size_t next = 0;
        for (std::int64_t b = 0; b < size[0]; ++b)
          for (std::int64_t h = 0; h < size[1]; ++h)
            for (std::int64_t s = 0; s < size[2]; ++s)
              for (std::int64_t d = 0; d < size[3]; ++d) index[next++] = static_cast<float>(at(b, h, s) + 1);
        // A window of one key: O of row s is V of row s. Queries and keys differ along the far dimension too,
        // so that a wrapped address shows in LSE = q.k / 8 = 64 x x / 8.
        q.set(index);
        k.set(index);
        v.set(index);
        out.set(zero);
        std::vector<float> lse(static_cast<std::size_t>(size[0] * size[1] * size[2]));
        Memory lse_memory(row().side, lse.size() * sizeof(float));
        fa_forward_args args = make_args(q, k, v, out);
        args.mask.left = args.mask.right = 0;
        args.lse = static_cast<float*>(lse_memory.data());
        const fa_status status = run_args(args, row());
        if (status == FA_UNSUPPORTED && !on_host()) continue;
        ASSERT_EQ(status, FA_OK) << fa_last_error();
        EXPECT_EQ(out.get(), index);
        lse_memory.read(0, lse.data(), lse.size() * sizeof(float));
        for (std::size_t r = 0; r < lse.size(); ++r) {
          const float x = index[r * kD];
          ASSERT_NEAR(lse[r], 8 * x * x, 1e-3) << "row " << r;
        }
      } catch (const std::bad_alloc&) {
        GTEST_SKIP() << "skipped: no room for 5 x 2^30 elements of address space";
      }
    }
  }
}

TEST_P(Cases, P07_ManyKeys) {
  int ran = 0;
  for (const std::int64_t D : {128, 64}) {
    // All of the reported queries once. V1 has one block a head: ten of its query tiles are enough.
    const std::int64_t queries = on_host() ? 5 : row().version == Version::V1 || D == 64 ? 320 : 33728;
    const Problem p = problem(shape(1, 1, 1, queries, 33728, D));
    if (!takes(p, row())) continue;  // a stand-in runs it under its own name
    ++ran;
    Inputs inputs = make_inputs(p);
    std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
    std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
    const auto got = run_row(p, inputs, row());
    ASSERT_TRUE(got);
    EXPECT_EQ(check_forward(p, inputs, *got), "");
    expect_lse(
        p, *got, [](std::int64_t) { return 10.426084; }, 1e-5 + 2e-6 * 10.5);
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

// ---- P08: many heads, batches, queries
// ------------------------------------------------------------------------

TEST_P(Cases, P08_ManyHeadsBatchesQueries) {
  for (const char* line : {"H65536 M10 N10 D16", "B65536 H1 M10 N10 D16", "H1 M4194241 N16 D4",
                           "H65536/8 M3 N10 D64", "B65536 H1 M2 N3 D64"}) {
    SCOPED_TRACE(line);
    const Watchdog watchdog(240, line);
    const Problem p = problem(line);
    const Inputs inputs = make_inputs(p);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    EXPECT_EQ(check_forward(p, inputs, *got), "");
    // The last head, batch or row, alone.
    Problem last = p;
    last.B = last.H = last.Hk = 1;
    if (p.H == 1 && p.B == 1) last.M = 1;
    const auto tail = [](const std::vector<float>& x, std::int64_t n) {
      return std::vector<float>(x.end() - static_cast<std::ptrdiff_t>(n), x.end());
    };
    const auto alone = run_row(
        last, {tail(inputs.q, last.M * p.D), tail(inputs.k, p.N * p.D), tail(inputs.v, p.N * p.D)}, row());
    ASSERT_TRUE(alone);
    EXPECT_EQ(bits_of(alone->out), bits_of(tail(got->out, last.M * p.D)));
    // V7's tiles for a full device are other ones than those for a few blocks: one unit apart, as seen on an
    // H200.
    const std::vector<std::uint32_t> lse = bits_of(tail(got->lse, last.M)), alone_lse = bits_of(alone->lse);
    ASSERT_EQ(lse.size(), alone_lse.size());
    const std::uint32_t units = row().version == Version::V7 ? 1 : 0;
    for (std::size_t i = 0; i < lse.size(); ++i) {
      ASSERT_LE(std::max(lse[i], alone_lse[i]) - std::min(lse[i], alone_lse[i]), units) << "row " << i;
    }
  }
}

// The same count of queries at D64. Rows of Q overlap, each 16 bytes behind the one before, so that 4,194,241
// different ones take 64 MiB; a few of them run alone must give the same bits, and no row may be left out.
TEST_P(Cases, P08_ManyQueriesOfD64) {
  if (on_host()) GTEST_SKIP() << "for a device's grid; the host runs P08_ManyHeadsBatchesQueries";
  constexpr std::int64_t M = 64 * 65535 + 1, N = 16, D = 64;
  const std::size_t width = size_of(row().dtype);
  const std::int64_t step = static_cast<std::int64_t>(16 / width);
  Array k(row().side, row().dtype, {1, 1, N, D}), v(row().side, row().dtype, {1, 1, N, D});
  const Inputs inputs = make_inputs(problem("M1 N16 D64"));
  k.set(inputs.k), v.set(inputs.v);
  Array q(row().side, row().dtype, {1, 1, 1, (M - 1) * step + D});
  std::vector<float> values(static_cast<std::size_t>((M - 1) * step + D));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 11 & 1023u) - 512) / 256;
  }
  q.set(values);
  const std::size_t out_bytes = static_cast<std::size_t>(M * D) * width, row_bytes = D * width;
  Memory out(row().side, out_bytes), lse(row().side, static_cast<std::size_t>(M) * sizeof(float));
  std::vector<unsigned char> bytes(out_bytes, 0xff);
  out.write(0, bytes.data(), bytes.size());
  std::vector<float> sums(static_cast<std::size_t>(M), kNaN);
  lse.write(0, sums.data(), sums.size() * sizeof(float));

  fa_forward_args args = make_args(q, k, v, q);
  args.q.size[2] = args.out.size[2] = M;
  args.q.size[3] = args.out.size[3] = D;
  args.q.stride[2] = step;
  args.out.stride[2] = D;
  args.out.data = out.data();
  args.lse = static_cast<float*>(lse.data());
  const Watchdog watchdog(120, "P08_ManyQueriesOfD64");
  const fa_status status = run_args(args, row());
  if (status == FA_UNSUPPORTED) GTEST_SKIP() << "the row rejects it: " << fa_last_error();
  ASSERT_EQ(status, FA_OK) << fa_last_error();
  out.read(0, bytes.data(), bytes.size());
  lse.read(0, sums.data(), sums.size() * sizeof(float));
  for (std::size_t r = 0; r < sums.size(); ++r) {
    ASSERT_TRUE(std::isfinite(sums[r])) << "LSE of row " << r;
    // 0xFF in both ends of a row is what it was filled with.
    const unsigned char* at = &bytes[r * row_bytes];
    ASSERT_FALSE(at[width - 1] == 0xff || at[row_bytes - 1] == 0xff) << "row " << r;
  }

  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{64},
                               std::int64_t{65}, M / 2, M - 66, M - 65, M - 2, M - 1}) {
    Array one(row().side, row().dtype, {1, 1, 1, D});
    one.fill(0xff);
    Memory one_lse(row().side, sizeof(float));
    fa_forward_args alone = args;
    alone.q.data = static_cast<char*>(q.data()) + static_cast<std::size_t>(r * step) * width;
    alone.q.size[2] = alone.out.size[2] = 1;
    alone.out.data = one.data();
    alone.lse = static_cast<float*>(one_lse.data());
    ASSERT_EQ(run_args(alone, row()), FA_OK) << fa_last_error();
    std::vector<std::uint32_t> want(static_cast<std::size_t>(D), 0);
    for (std::size_t d = 0; d < want.size(); ++d) {
      std::memcpy(&want[d], &bytes[static_cast<std::size_t>(r) * row_bytes + d * width], width);
    }
    EXPECT_EQ(one.bits(), want) << "row " << r;
    float sum = 0;
    one_lse.read(0, &sum, sizeof sum);
    EXPECT_EQ(sum, sums[static_cast<std::size_t>(r)]) << "LSE of row " << r;
  }
}

// ---- P09: strides
// ---------------------------------------------------------------------------------------------

struct StrideSet {
  const char* name;
  // Strides of batch, head, sequence for the sizes.
  void (*make)(const Sizes& n, std::int64_t (&stride)[3]);
};

constexpr StrideSet kStrideSets[] = {
    {"[B][S][H][D]",
     [](const Sizes& n, std::int64_t (&s)[3]) { s[1] = n[3], s[2] = n[1] * s[1], s[0] = n[2] * s[2]; }},
    {"[H][B][S][D]",
     [](const Sizes& n, std::int64_t (&s)[3]) { s[2] = n[3], s[0] = n[2] * s[2], s[1] = n[0] * s[0]; }},
    {"[H][S][B][D]",
     [](const Sizes& n, std::int64_t (&s)[3]) { s[0] = n[3], s[2] = n[0] * s[0], s[1] = n[2] * s[2]; }},
    {"[S][B][H][D]",
     [](const Sizes& n, std::int64_t (&s)[3]) { s[1] = n[3], s[0] = n[1] * s[1], s[2] = n[0] * s[0]; }},
    {"[S][H][B][D]",
     [](const Sizes& n, std::int64_t (&s)[3]) { s[0] = n[3], s[1] = n[0] * s[0], s[2] = n[1] * s[1]; }},
    {"rows 16 wider",
     [](const Sizes& n, std::int64_t (&s)[3]) {
       s[2] = n[3] + 16, s[1] = n[2] * s[2] + 32, s[0] = n[1] * s[1] + 64;
     }},
    {"rows 1 wider",
     [](const Sizes& n, std::int64_t (&s)[3]) {
       s[2] = n[3] + 1, s[1] = n[2] * s[2] + 3, s[0] = n[1] * s[1] + 5;
     }},
    {"[B][S][H][D], heads 7 wider",
     [](const Sizes& n, std::int64_t (&s)[3]) {
       s[1] = n[3] + 7, s[2] = n[1] * s[1] + 9, s[0] = n[2] * s[2] + 11;
     }},
};

class StrideCase {
 public:
  StrideCase(const Row& row, const Problem& p) : row_(row), p_(p), inputs_(make_inputs(p)) {}

  // O's bits with each tensor in its own strides; null: compact. Empty where the row's own code does not take
  // the strides: a stand-in's sums may differ in the last bit.
  std::vector<std::uint32_t> run(const StrideSet* q, const StrideSet* k, const StrideSet* v,
                                 const StrideSet* out) const {
    const Sizes q_size = {p_.B, p_.H, p_.M, p_.D}, k_size = {p_.B, p_.Hk, p_.N, p_.D},
                v_size = {p_.B, p_.Hk, p_.N, p_.Dv}, out_size = {p_.B, p_.H, p_.M, p_.Dv};
    Array aq = array(q_size, q), ak = array(k_size, k), av = array(v_size, v), ao = array(out_size, out);
    aq.fill_value(kNaN), ak.fill_value(kNaN), av.fill_value(kNaN), ao.fill(0xff);
    aq.set(inputs_.q), ak.set(inputs_.k), av.set(inputs_.v);
    fa_forward_args args = make_args(aq, ak, av, ao);
    args.mask = {p_.mask.left, p_.mask.right, static_cast<std::int32_t>(p_.mask.alignment), 0};
    const std::string kernel = kernel_of(args, row_);
    const fa_status status = run_args(args, row_);
    if (kernel.empty() && row_.side == Side::device) {
      EXPECT_EQ(status, FA_UNSUPPORTED) << fa_last_error();
      return {};
    }
    EXPECT_EQ(status, FA_OK) << fa_last_error();
    return kernel == row_.kernel ? ao.bits() : std::vector<std::uint32_t>();
  }

 private:
  Array array(const Sizes& size, const StrideSet* set) const {
    std::int64_t stride[3] = {size[1] * size[2] * size[3], size[2] * size[3], size[3]};
    if (set != nullptr) set->make(size, stride);
    return Array(row_.side, row_.dtype, size, stride, 16);
  }

  Row row_;
  Problem p_;
  Inputs inputs_;
};

TEST_P(Cases, P09_ReportedStrides) {
  for (const char* line : {"H16 M62 N62 D128", "H16 M62 N62 D64"}) {
    const StrideCase c(row(), problem(line));
    const auto compact = c.run(nullptr, nullptr, nullptr, nullptr);
    if (compact.empty()) continue;
    EXPECT_EQ(c.run(nullptr, nullptr, &kStrideSets[0], nullptr), compact) << line;
  }
}

TEST_P(Cases, P09_EveryTensorItsOwnStrides) {
  for (const char* line : {"B2 H4/2 M33 N50 D64 causal", "B3 H2 M9 N17 D40"}) {
    const StrideCase c(row(), problem(line));
    const auto compact = c.run(nullptr, nullptr, nullptr, nullptr);
    if (compact.empty()) continue;
    for (const StrideSet& set : kStrideSets) {
      SCOPED_TRACE(std::string(line) + ", " + set.name);
      const auto same = [&](const std::vector<std::uint32_t>& got) { return got.empty() || got == compact; };
      EXPECT_TRUE(same(c.run(&set, nullptr, nullptr, nullptr))) << "q";
      EXPECT_TRUE(same(c.run(nullptr, &set, nullptr, nullptr))) << "k";
      EXPECT_TRUE(same(c.run(nullptr, nullptr, &set, nullptr))) << "v";
      EXPECT_TRUE(same(c.run(nullptr, nullptr, nullptr, &set))) << "out";
      EXPECT_TRUE(same(c.run(&set, &set, &set, &set))) << "all";
    }
    EXPECT_EQ(c.run(&kStrideSets[0], &kStrideSets[1], &kStrideSets[4], &kStrideSets[5]), compact)
        << "four at once";
  }
}

// Stride 0 over batches, heads or keys equals the expanded copy.
TEST_P(Cases, P09_BroadcastInputs) {
  const std::int64_t B = 2, H = 4, S = 21, D = 64;
  const Sizes size = {B, H, S, D};
  const Problem p = problem("B2 H4 S21 D64");
  const Inputs inputs = make_inputs(p);
  for (int who = 0; who < 3; ++who) {
    for (int mask = 1; mask < 8; ++mask) {
      std::int64_t stride[3] = {H * S * D, S * D, D};
      for (int dim = 0; dim < 3; ++dim)
        if ((mask >> dim & 1) != 0) stride[dim] = 0;
      const auto run = [&](bool broadcast) {
        std::vector<Array> t;
        const std::vector<float>* data[3] = {&inputs.q, &inputs.k, &inputs.v};
        for (int i = 0; i < 3; ++i) {
          t.emplace_back(row().side, row().dtype, size);
          t.back().set(*data[i]);
        }
        if (who >= 0) {
          Array narrow(row().side, row().dtype, size, stride);
          narrow.set(*data[who]);  // the last write of an element stays
          if (broadcast) {
            t[static_cast<std::size_t>(who)] = std::move(narrow);
          } else {
            t[static_cast<std::size_t>(who)].set(narrow.get());
          }
        }
        Array out(row().side, row().dtype, size);
        out.fill(0xff);
        const fa_status status = run_args(make_args(t[0], t[1], t[2], out), row());
        if (status == FA_UNSUPPORTED && !on_host()) return std::vector<std::uint32_t>();
        EXPECT_EQ(status, FA_OK) << fa_last_error();
        return out.bits();
      };
      const auto narrow = run(true);
      if (narrow.empty()) continue;
      EXPECT_EQ(narrow, run(false)) << "tensor " << who << ", dimensions " << mask;
    }
  }
}

TEST_P(Cases, P09_LastStrideIsOne) {
  const Sizes size = {1, 2, 5, 8};
  Array q(row().side, row().dtype, size), k(row().side, row().dtype, size), v(row().side, row().dtype, size),
      out(row().side, row().dtype, size);
  out.fill(0xff);
  const auto before = out.bits();
  for (int who = 0; who < 4; ++who) {
    for (const std::int64_t stride : {0, 2, -1, 8}) {
      fa_forward_args args = make_args(q, k, v, out);
      fa_tensor* tensors[] = {&args.q, &args.k, &args.v, &args.out};
      tensors[who]->stride[3] = stride;
      EXPECT_EQ(run_args(args, row()), FA_INVALID_ARGUMENT);
      EXPECT_NE(std::string(fa_last_error()).find("stride[3] = " + std::to_string(stride)),
                std::string::npos);
      EXPECT_EQ(out.bits(), before);
    }
  }
}

// ---- P10: alignment
// -------------------------------------------------------------------------------------------

TEST_P(Cases, P10_RowPitchOfNoAlignment) {
  for (const char* layout : {"bhsd", "bshd", "padded", "unaligned"}) {
    for (const char* head : {"D46", "D1", "D3", "D63", "D65", "D46/45", "D64"}) {
      const std::string line = std::string("H13/1 M33 N33 ") + head + " " + layout;
      check_row(problem(line), row());
      EXPECT_TRUE(check_row(problem("H2 M33 N33 D64"), row()) || !on_host()) << "a call after " << line;
    }
  }
}

// Base pointers at every element of a 16-byte line, each tensor in turn.
TEST_P(Cases, P10_BasePointerOfNoAlignment) {
  for (const std::int64_t D : {40, 64}) {
    const Sizes size = {1, 2, 33, D};
    const Problem p = problem(shape(1, 2, 2, 33, 33, D));
    const Inputs inputs = make_inputs(p);
    const std::size_t width = size_of(row().dtype);
    // By the kernel that ran: a stand-in's sums may differ in the last bit.
    std::map<std::string, std::vector<std::uint32_t>> wanted;
    for (std::size_t shift = 0; shift < 16 / width; ++shift) {
      for (int who = 0; who < 4; ++who) {
        // One element more in front: the same tensor, shifted.
        std::vector<Array> t;
        const std::int64_t stride[3] = {2 * 33 * D, 33 * D, D};
        for (int i = 0; i < 4; ++i) t.emplace_back(row().side, row().dtype, size, stride, 16);
        fa_forward_args args = make_args(t[0], t[1], t[2], t[3]);
        const std::vector<float>* data[3] = {&inputs.q, &inputs.k, &inputs.v};
        fa_tensor* tensors[4] = {&args.q, &args.k, &args.v, &args.out};
        for (int i = 0; i < 3; ++i) {
          const std::size_t at = i == who ? shift : 0;
          std::vector<float> shifted(at, kNaN);
          shifted.insert(shifted.end(), data[i]->begin(), data[i]->end());
          Sizes flat = {1, 1, 1, static_cast<std::int64_t>(shifted.size())};
          t[static_cast<std::size_t>(i)] = Array(row().side, row().dtype, flat);
          t[static_cast<std::size_t>(i)].set(shifted);
          tensors[i]->data = static_cast<char*>(t[static_cast<std::size_t>(i)].data()) + at * width;
        }
        const std::size_t at = who == 3 ? shift : 0;
        Sizes flat = {1, 1, 1, static_cast<std::int64_t>(elements(size) + at)};
        Array out(row().side, row().dtype, flat);
        out.fill(0xff);
        args.out.data = static_cast<char*>(out.data()) + at * width;
        const std::string kernel = kernel_of(args, row());
        const fa_status status = run_args(args, row());
        if (status == FA_UNSUPPORTED && !on_host()) continue;
        ASSERT_EQ(status, FA_OK) << fa_last_error();
        std::vector<std::uint32_t> got = out.bits();
        for (std::size_t i = 0; i < at; ++i) {
          ASSERT_EQ(got[i], width == 2 ? 0xffffu : 0xffffffffu) << "written before out";
        }
        got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(at));
        std::vector<std::uint32_t>& want = wanted[kernel];
        if (want.empty()) want = got;
        EXPECT_EQ(got, want) << kernel << ", D" << D << ", tensor " << who << " shifted by " << shift
                             << " elements";
      }
    }
  }
}

// ---- P11: very large logits
// -----------------------------------------------------------------------------------

TEST_P(Cases, P11_VeryNegativeLogits) {
  int ran = 0;
  for (const std::size_t D : {std::size_t{128}, std::size_t{64}}) {
    const Problem p = problem(shape(1, 16, 16, 1, 64, static_cast<std::int64_t>(D)) + " seed 3");
    const double want = D == 128 ? -21382.9 : -30240.0;  // -540 x 448 / sqrt(D)
    for (const std::size_t winner : {std::size_t{0}, std::size_t{17}, std::size_t{63}}) {
      Inputs inputs = make_inputs(p);
      std::fill(inputs.q.begin(), inputs.q.end(), 0.0f);
      std::fill(inputs.k.begin(), inputs.k.end(), 0.0f);
      for (std::size_t h = 0; h < 16; ++h) {
        inputs.q[h * D] = 448;
        for (std::size_t j = 0; j < 64; ++j) inputs.k[(h * 64 + j) * D] = j == winner ? -540.0f : -544.0f;
      }
      const auto got = run_row(p, inputs, row());
      if (!got) break;
      ++ran;
      for (std::size_t h = 0; h < 16; ++h) {
        ASSERT_NEAR(got->lse[h], want, 0.05);
        for (std::size_t d = 0; d < D; ++d) {
          ASSERT_EQ(got->out[h * D + d], inputs.v[(h * 64 + winner) * D + d])
              << "head " << h << ", column " << d;
        }
      }
    }
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

TEST_P(Cases, P11_VeryPositiveLogits) {
  if (row().dtype == Dtype::float16) {
    // All logits equal 8e6: O is the mean of V.
    const Problem p = problem("H1 M3 N64 D64");
    Inputs inputs = make_inputs(p);
    std::fill(inputs.q.begin(), inputs.q.end(), 1000.0f);
    std::fill(inputs.k.begin(), inputs.k.end(), 1000.0f);
    const auto got = run_row(p, inputs, row());
    if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
    for (std::size_t r = 0; r < 3; ++r) {
      ASSERT_NEAR(got->lse[r], 8e6 + std::log(64.0), 8e6 * 2e-6);
      for (std::size_t d = 0; d < 64; ++d) {
        double mean = 0;
        for (std::size_t j = 0; j < 64; ++j) mean += static_cast<double>(inputs.v[j * 64 + d]) / 64;
        ASSERT_NEAR(got->out[r * 64 + d], mean, 1e-5 + 0x1p-11 * std::fabs(mean)) << "column " << d;
      }
    }
    return;
  }
  const Problem p = problem("H1 M1 N1 D64");
  Inputs inputs;
  inputs.q = inputs.k = inputs.v = std::vector<float>(64, 133120.0f);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
  for (const float o : got->out) ASSERT_EQ(o, 133120.0f);
  ASSERT_NEAR(got->lse[0], 133120.0 * 133120.0 * 8, 133120.0 * 133120.0 * 8 * 1e-6);
}

// The same winner hidden by the mask must not be the maximum that the others are measured from.
TEST_P(Cases, P11_TheMaskedMaximumDoesNotCount) {
  const Problem p = problem("H2 S100 D64 causal");
  Inputs inputs = make_inputs(p);
  // Later keys have ever larger logits: each row's maximum is its own key, thousands above the next.
  for (std::size_t r = 0; r < 200; ++r) {
    for (std::size_t d = 0; d < 64; ++d)
      inputs.q[r * 64 + d] = 8, inputs.k[r * 64 + d] = static_cast<float>(r % 100);
  }
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
  for (std::size_t i = 0; i < got->out.size(); ++i) ASSERT_EQ(got->out[i], inputs.v[i]) << "element " << i;
}

// ---- P12: garbage beyond the used length, dirty workspace
// -----------------------------------------------------

// A cache of capacity 128 with `used` keys in use: the rest is never read, whatever it holds.
TEST_P(Cases, P12_GarbageBeyondTheUsedLength) {
  const std::int64_t H = 8, capacity = 128, D = 64;
  const std::int64_t stride[3] = {H * capacity * D, capacity * D, D};
  for (const std::int64_t M : {1, 3, 40}) {
    for (const std::int64_t used : {32, 64, 96, 48, 1, 3, 127, 128}) {
      const Problem p = problem(shape(2, H, H, M, used, D) + " causal");
      const Inputs inputs = make_inputs(p);
      const auto run = [&](float garbage) {
        Array q(row().side, row().dtype, {2, H, M, D}),
            k(row().side, row().dtype, {2, H, used, D}, stride, capacity * D),
            v(row().side, row().dtype, {2, H, used, D}, stride, capacity * D),
            out(row().side, row().dtype, {2, H, M, D});
        k.fill_value(garbage), v.fill_value(garbage), out.fill(0xff);
        q.set(inputs.q), k.set(inputs.k), v.set(inputs.v);
        fa_forward_args args = make_args(q, k, v, out);
        args.mask.right = 0;
        const fa_status status = run_args(args, row());
        if (status == FA_UNSUPPORTED && !on_host()) return std::vector<std::uint32_t>();
        EXPECT_EQ(status, FA_OK) << fa_last_error();
        return out.bits();
      };
      const auto clean = run(0.0f);
      if (clean.empty()) continue;
      for (const float garbage : {kNaN, kInfinity, -kInfinity, 60000.0f}) {
        EXPECT_EQ(run(garbage), clean) << "M" << M << ", used " << used << ", filled with " << garbage;
      }
    }
  }
}

// The caller's workspace may hold anything.
TEST_P(Cases, P12_DirtyWorkspace) {
  for (const char* line : {"B2 H4/2 M65 N130 D64 causal", "H1 M1 N1000 D128", "H3 M130 N65 D40"}) {
    const Problem p = problem(line);
    const Inputs inputs = make_inputs(p);
    Array q(row().side, row().dtype, {p.B, p.H, p.M, p.D}), k(row().side, row().dtype, {p.B, p.Hk, p.N, p.D}),
        v(row().side, row().dtype, {p.B, p.Hk, p.N, p.Dv}),
        out(row().side, row().dtype, {p.B, p.H, p.M, p.Dv});
    q.set(inputs.q), k.set(inputs.k), v.set(inputs.v);
    fa_forward_args args = make_args(q, k, v, out);
    args.mask = {p.mask.left, p.mask.right, static_cast<std::int32_t>(p.mask.alignment), 0};
    args.threads = 2;
    if (run_args(args, row()) != FA_OK) {
      EXPECT_FALSE(on_host()) << fa_last_error();
      continue;
    }
    const auto own = out.bits();
    std::size_t bytes = 0;
    ASSERT_EQ(fa_forward_workspace_size(&args, static_cast<fa_version>(row().version), &bytes), FA_OK);
    if (bytes == 0) continue;
    Memory workspace(row().side, bytes);
    for (const int byte : {0x00, 0xff, 0x7f}) {
      const std::vector<unsigned char> dirt(bytes, static_cast<unsigned char>(byte));
      workspace.write(0, dirt.data(), bytes);
      out.fill(0xff);
      args.workspace = workspace.data();
      args.workspace_size = bytes;
      ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
      EXPECT_EQ(out.bits(), own) << line << ", workspace filled with " << byte;
    }
  }
}

// A NaN in a visible input reaches the rows that see it, and no other.
TEST_P(Cases, P12_VisibleNaNReachesWhoSeesIt) {
  const Problem p = problem("H2 S70 D64 causal");
  const Inputs clean_inputs = make_inputs(p);
  const auto clean = run_row(p, clean_inputs, row());
  if (!clean) GTEST_SKIP() << "the row rejects " << to_string(p);
  const auto expect = [&](const Inputs& inputs, const char* what, auto affected) {
    const auto got = run_row(p, inputs, row());
    ASSERT_TRUE(got);
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 70; ++i)
        for (std::size_t d = 0; d < 64; ++d) {
          const std::size_t at = (h * 70 + i) * 64 + d;
          if (affected(h, i, d)) {
            ASSERT_TRUE(std::isnan(got->out[at])) << what << " at [" << h << ", " << i << ", " << d << "]";
          } else {
            ASSERT_EQ(bits_of(std::vector{got->out[at]}), bits_of(std::vector{clean->out[at]}))
                << what << " at [" << h << ", " << i << ", " << d << "]";
          }
        }
  };
  Inputs inputs = clean_inputs;
  inputs.q[(1 * 70 + 33) * 64 + 5] = kNaN;
  expect(inputs, "NaN in q", [](std::size_t h, std::size_t i, std::size_t) { return h == 1 && i == 33; });
  inputs = clean_inputs;
  inputs.k[(0 * 70 + 40) * 64 + 63] = kNaN;
  expect(inputs, "NaN in k", [](std::size_t h, std::size_t i, std::size_t) { return h == 0 && i >= 40; });
  inputs = clean_inputs;
  inputs.v[(1 * 70 + 0) * 64 + 7] = kNaN;  // key 0: seen by every row
  expect(inputs, "NaN in v", [](std::size_t h, std::size_t, std::size_t d) { return h == 1 && d == 7; });
}

// ---- P13: scale 0 and negative
// --------------------------------------------------------------------------------

TEST_P(Cases, P13_ScaleZeroIsLiteral) {
  const Problem p = problem("H2 S64 D64 causal scale:0");
  const Inputs inputs = make_inputs(p);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
  EXPECT_EQ(check_forward(p, inputs, *got), "");
  expect_lse(p, *got, [](std::int64_t i) { return std::log(static_cast<double>(i + 1)); });
  const double u = row().dtype == Dtype::float32 ? 1e-6 : row().dtype == Dtype::float16 ? 0x1p-11 : 0x1p-8;
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t d = 0; d < 64; ++d) {
      double sum = 0;
      for (std::size_t i = 0; i < 64; ++i) {
        sum += static_cast<double>(inputs.v[(h * 64 + i) * 64 + d]);
        const double mean = sum / static_cast<double>(i + 1);
        ASSERT_NEAR(got->out[(h * 64 + i) * 64 + d], mean, 1e-6 + u * std::fabs(mean));
      }
    }
}

TEST_P(Cases, P13_NegativeScale) {
  for (const char* line :
       {"H2 S64 D64 causal", "H2 M100 N40 D64 causal", "S70 D64 window:9,4", "M33 N70 D64"}) {
    SCOPED_TRACE(line);
    Problem p = problem(line);
    Inputs inputs = make_inputs(p);
    p.scale = -0.125f;
    const auto negative = run_row(p, inputs, row());
    if (!negative) continue;
    EXPECT_EQ(check_forward(p, inputs, *negative), "");
    if (!takes(p, row())) continue;  // the stand-in's bits are not the row's
    for (float& q : inputs.q) q = -q;
    p.scale = 0.125f;
    const auto mirrored = run_row(p, inputs, row());
    ASSERT_TRUE(mirrored);
    EXPECT_EQ(bits_of(negative->out), bits_of(mirrored->out));
    EXPECT_EQ(bits_of(negative->lse), bits_of(mirrored->lse));
  }
}

// Zero and negative scales with every way of hiding keys: what is masked stays masked.
TEST_P(Cases, P13_ScaleAndMask) {
  for (const char* scale : {"scale:0", "scale:-0.125", "scale:-2"})
    for (const char* mask :
         {"causal", "causal-top-left", "window:3,0", "window:0,3", "window-top-left:5,5", "window:0,0"})
      for (const char* sizes : {"M40 N40", "M70 N33", "M33 N70", "M5 N0"})
        check_row(problem(std::string("H2 D64 ") + sizes + " " + mask + " " + scale), row());
}

TEST_P(Cases, P13_UnsetScaleIsTheDefault) {
  for (const char* head : {"D64", "D16", "D7", "D128/32"}) {
    Problem p = problem(std::string("H2 M20 N33 ") + head);
    const Inputs inputs = make_inputs(p);
    const auto unset = run_row(p, inputs, row());
    if (!unset) continue;
    p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.D)));
    const auto set = run_row(p, inputs, row());
    ASSERT_TRUE(set);
    EXPECT_EQ(bits_of(unset->out), bits_of(set->out)) << head;
    EXPECT_EQ(bits_of(unset->lse), bits_of(set->lse)) << head;
  }
}

// ---- P14: grouped heads
// ---------------------------------------------------------------------------------------

TEST_P(Cases, P14_SevenGroupsOfThree) {
  for (const std::size_t D : {std::size_t{120}, std::size_t{64}}) {
    const double scale = std::sqrt(static_cast<double>(D));
    Problem p = problem(shape(1, 21, 7, 1, 1, static_cast<std::int64_t>(D)));
    p.scale = static_cast<float>(scale);
    const Inputs inputs = make_inputs(p);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    for (std::size_t h = 0; h < 21; ++h) {
      double logit = 0;
      for (std::size_t d = 0; d < D; ++d) {
        ASSERT_EQ(got->out[h * D + d], inputs.v[h / 3 * D + d]) << "head " << h;
        logit += static_cast<double>(inputs.q[h * D + d]) * static_cast<double>(inputs.k[h / 3 * D + d]);
      }
      logit *= scale;
      ASSERT_NEAR(got->lse[h], logit, 2e-5 * scale + 2e-6 * std::fabs(logit)) << "head " << h;
    }
  }
}

TEST_P(Cases, P14_EveryRatioEqualsRepeatedHeads) {
  for (const std::int64_t H : {1, 2, 3, 4, 6, 8, 12, 16}) {
    for (std::int64_t Hk = 1; Hk <= H; ++Hk) {
      if (H % Hk != 0) continue;
      const Problem p = problem(shape(2, H, Hk, 17, 33, 64) + " causal");
      const Inputs inputs = make_inputs(p);
      const auto grouped = run_row(p, inputs, row());
      if (!grouped) continue;
      Problem repeated = p;
      repeated.Hk = H;
      Inputs copies;
      copies.q = inputs.q;
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t h = 0; h < H; ++h) {
          const std::ptrdiff_t at = (b * Hk + h / (H / Hk)) * 33 * 64;
          copies.k.insert(copies.k.end(), inputs.k.begin() + at, inputs.k.begin() + at + 33 * 64);
          copies.v.insert(copies.v.end(), inputs.v.begin() + at, inputs.v.begin() + at + 33 * 64);
        }
      const auto plain = run_row(repeated, copies, row());
      ASSERT_TRUE(plain);
      EXPECT_EQ(bits_of(grouped->out), bits_of(plain->out)) << to_string(p);
      EXPECT_EQ(bits_of(grouped->lse), bits_of(plain->lse)) << to_string(p);
    }
  }
}

TEST_P(Cases, P14_RatiosThatAreNone) {
  const std::int64_t pairs[][2] = {{33, 2}, {3, 2}, {1, 2}, {8, 3}, {7, 14}, {4, 0}, {0, 1}, {0, 0}};
  for (const auto& [H, Hk] : pairs) {
    const Sizes q_size = {1, std::max<std::int64_t>(H, 1), 5, 8},
                k_size = {1, std::max<std::int64_t>(Hk, 1), 5, 8};
    Array q(row().side, row().dtype, q_size), k(row().side, row().dtype, k_size),
        v(row().side, row().dtype, k_size), out(row().side, row().dtype, q_size);
    out.fill(0xff);
    const auto before = out.bits();
    fa_forward_args args = make_args(q, k, v, out);
    args.q.size[1] = args.out.size[1] = H;
    args.k.size[1] = args.v.size[1] = Hk;
    EXPECT_EQ(run_args(args, row()), FA_INVALID_ARGUMENT) << H << ", " << Hk;
    const std::string text = fa_last_error();
    if (H > 0 && Hk > 0) {
      EXPECT_EQ(text, "k heads = " + std::to_string(Hk) + " must divide q heads = " + std::to_string(H));
    } else {
      EXPECT_NE(text.find("heads = 0 must be at least 1"), std::string::npos) << text;
    }
    EXPECT_EQ(out.bits(), before) << H << ", " << Hk;
  }
}

// ---- P15: window bounds
// ---------------------------------------------------------------------------------------

TEST_P(Cases, P15_RightBoundBeyondTheKeys) {
  const Problem p = problem("H2 M300 N100 D64 window:-1,150");
  const Inputs inputs = make_inputs(p);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
  EXPECT_EQ(check_forward(p, inputs, *got), "");
  const auto counted = run_row(p, without_queries(p), row());
  ASSERT_TRUE(counted);
  // Position i - 200; keys to i - 50: rows 0 - 49 see none, row 60 sees 11, the last all 100.
  expect_lse(p, *counted, [](std::int64_t i) {
    const std::int64_t n = std::clamp<std::int64_t>(i - 50 + 1, 0, 100);
    return n == 0 ? -HUGE_VAL : std::log(static_cast<double>(n));
  });
  EXPECT_NEAR(counted->lse[60], std::log(11.0), 4e-6);
}

TEST_P(Cases, P15_UnboundedByLargeNumbers) {
  for (const char* sizes : {"M300 N100", "M100 N300", "M128 N128"}) {
    const std::string base = std::string("H2 D64 ") + sizes;
    const Problem full = problem(base);
    const Inputs inputs = make_inputs(full);
    const auto want = run_row(full, inputs, row());
    if (!want) continue;
    for (const char* bound :
         {"2147483647", "2147483646", "4294967295", "4294967296", "9223372036854775807"}) {
      for (const std::string& window :
           {std::string("window:-1,") + bound, std::string("window:") + bound + ",-1",
            std::string("window:") + bound + "," + bound,
            std::string("window-top-left:") + bound + "," + bound}) {
        const auto got = run_row(problem(base + " " + window), inputs, row());
        ASSERT_TRUE(got || !on_host());
        if (!got) continue;
        EXPECT_EQ(bits_of(got->out), bits_of(want->out)) << base << " " << window;
        EXPECT_EQ(bits_of(got->lse), bits_of(want->lse)) << base << " " << window;
      }
    }
  }
}

TEST_P(Cases, P15_LeftWindowDoesNotSeeTheFuture) {
  for (const char* sizes : {"S200", "M100 N300", "M300 N100"}) {
    for (const int left : {0, 1, 31, 64, 150}) {
      const Problem p = problem(std::string("H2 D64 ") + sizes + " window:" + std::to_string(left) + ",0");
      check_row(p, row());
      const auto got = run_row(p, without_queries(p), row());
      if (!got) continue;
      expect_lse(p, *got, [&](std::int64_t i) {
        const std::int64_t at = i + p.N - p.M;
        const std::int64_t n = at < 0 ? 0 : std::min<std::int64_t>(at, left) + 1;
        return n == 0 ? -HUGE_VAL : std::log(static_cast<double>(n));
      });
    }
  }
}

TEST_P(Cases, P15_LeftBoundIsInclusive) {
  const Problem four = problem("S12 D64 window:4,0");
  const auto got = run_row(four, without_queries(four), row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(four);
  expect_lse(
      four, *got, [](std::int64_t i) { return i >= 4 ? 1.609438 : std::log(static_cast<double>(i + 1)); },
      2e-6);
  const Problem reported = problem(on_host() ? "H1 S2048 D64 window:1024,0" : "H64 S2048 D64 window:1024,0");
  const auto long_one = run_row(reported, without_queries(reported), row());
  ASSERT_TRUE(long_one);
  expect_lse(
      reported, *long_one,
      [](std::int64_t i) { return std::log(static_cast<double>(std::min<std::int64_t>(i + 1, 1025))); },
      1e-5);
}

// Every bound against every bound, counted.
TEST_P(Cases, P15_EveryBoundCounted) {
  for (const char* sizes : {"S9", "M5 N12", "M12 N5"}) {
    for (const char* mask : {"window:", "window-top-left:"}) {
      for (int left = -1; left <= 13; ++left) {
        for (int right = -1; right <= 13; ++right) {
          const Problem p = problem(std::string("D64 ") + sizes + " " + mask + std::to_string(left) + "," +
                                    std::to_string(right));
          const auto got = run_row(p, without_queries(p), row());
          if (!got) continue;
          const std::int64_t shift = p.mask.alignment == Alignment::bottom_right ? p.N - p.M : 0;
          expect_lse(p, *got, [&](std::int64_t i) {
            std::int64_t n = 0;
            for (std::int64_t j = 0; j < p.N; ++j) {
              n += (left < 0 || j >= i + shift - left) && (right < 0 || j <= i + shift + right);
            }
            return n == 0 ? -HUGE_VAL : std::log(static_cast<double>(n));
          });
        }
      }
    }
  }
}

// ---- P19: repeatability
// ---------------------------------------------------------------------------------------

TEST_P(Cases, P19_FiftyRunsAreOne) {
  int ran = 0;
  // The reported size: OnDevice.P19_ReportedSizeFiftyTimes.
  for (const char* line : {"B3 H2 M256 N128 D128", "H2 M256 N128 D64"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const Inputs inputs = make_inputs(p);
    const auto first = run_row(p, inputs, row());
    if (!first) continue;
    ++ran;
    EXPECT_EQ(check_forward(p, inputs, *first), "");
    for (int round = 1; round < 50; ++round) {
      const auto again = run_row(p, inputs, row());
      ASSERT_TRUE(again);
      ASSERT_TRUE(bits_of(again->out) == bits_of(first->out)) << "run " << round;
      ASSERT_TRUE(bits_of(again->lse) == bits_of(first->lse)) << "run " << round;
    }
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

// ---- P22: error reporting
// -------------------------------------------------------------------------------------

// A call that is refused leaves O and LSE as they were, and the next one works.
TEST_P(Cases, P22_RefusedCallsWriteNothing) {
  const Sizes size = {1, 2, 9, 64};
  Array q(row().side, row().dtype, size), k(row().side, row().dtype, size), v(row().side, row().dtype, size),
      out(row().side, row().dtype, size);
  for (Array* t : {&q, &k, &v}) t->fill_value(0.5f);
  Memory lse(row().side, 18 * sizeof(float));
  const std::vector<unsigned char> sentinel(18 * sizeof(float), 0xff);
  lse.write(0, sentinel.data(), sentinel.size());
  out.fill(0xff);
  const auto before = out.bits();

  const auto refuse = [&](const char* what, auto change) {
    fa_forward_args args = make_args(q, k, v, out);
    args.lse = static_cast<float*>(lse.data());
    change(args);
    const fa_status status = run_args(args, row());
    EXPECT_NE(status, FA_OK) << what;
    EXPECT_STRNE(fa_last_error(), "") << what;
    EXPECT_EQ(out.bits(), before) << what;
    std::vector<unsigned char> now(sentinel.size());
    lse.read(0, now.data(), now.size());
    EXPECT_EQ(now, sentinel) << what;
  };
  const fa_dtype other = row().dtype == Dtype::float32 ? FA_FLOAT16 : FA_FLOAT32;
  refuse("mixed dtypes, k", [&](fa_forward_args& a) { a.k.dtype = other; });
  refuse("mixed dtypes, q", [&](fa_forward_args& a) { a.q.dtype = other; });
  refuse("no dtype", [](fa_forward_args& a) { a.out.dtype = FA_DTYPE_NONE; });
  refuse("null q", [](fa_forward_args& a) { a.q.data = nullptr; });
  refuse("null k", [](fa_forward_args& a) { a.k.data = nullptr; });
  refuse("null v", [](fa_forward_args& a) { a.v.data = nullptr; });
  refuse("null out", [](fa_forward_args& a) { a.out.data = nullptr; });
  refuse("negative M", [](fa_forward_args& a) { a.q.size[2] = a.out.size[2] = -1; });
  refuse("negative N", [](fa_forward_args& a) { a.k.size[2] = a.v.size[2] = -9; });
  refuse("negative B",
         [](fa_forward_args& a) { a.q.size[0] = a.k.size[0] = a.v.size[0] = a.out.size[0] = -1; });
  refuse("D = 0", [](fa_forward_args& a) { a.q.size[3] = a.k.size[3] = 0; });
  refuse("D beyond 2^31", [](fa_forward_args& a) { a.q.size[3] = a.k.size[3] = std::int64_t{1} << 31; });
  refuse("D of q alone", [](fa_forward_args& a) { a.q.size[3] = 8; });
  refuse("NaN scale", [](fa_forward_args& a) { a.scale = kNaN, a.scale_is_set = 1; });

  fa_forward_args args = make_args(q, k, v, out);
  args.lse = static_cast<float*>(lse.data());
  const fa_status status = run_args(args, row());
  EXPECT_TRUE(status == FA_OK || (status == FA_UNSUPPORTED && !on_host())) << fa_last_error();
  if (status == FA_OK) {
    for (const float o : out.get()) ASSERT_EQ(o, 0.5f);
  }
}

// Every column is computed, or none: no head size leaves part of O unwritten.
TEST_P(Cases, P22_NoColumnIsLeftOut) {
  for (const std::int64_t D : {1, 8, 31, 32, 33, 40, 64, 80, 96, 128, 160, 192, 256, 257, 512, 1000}) {
    for (const std::int64_t Dv : {D, std::int64_t{64}, std::int64_t{33}}) {
      Problem p = problem(shape(1, 2, 2, 9, 11, D));
      p.Dv = Dv;
      const Inputs inputs = make_inputs(p);
      const auto got = run_row(p, inputs, row());
      if (!got) continue;
      EXPECT_EQ(check_forward(p, inputs, *got), "");
    }
  }
}

// ---- P25: fp32 is fp32
// ----------------------------------------------------------------------------------------

TEST_P(CasesFp32, P25_ErrorStaysAtFp32Level) {
  for (const char* mask : {"full", "causal"}) {
    const Problem p = problem(std::string("B2 H2 S1024 D64 ") + mask);
    const Inputs inputs = make_inputs(p);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    const Outputs<double> want = oracle_forward(p, inputs);
    const std::int64_t out_size[4] = {2, 2, 1024, 64}, lse_size[4] = {2, 2, 1024, 1};
    const ErrorStats out = error_stats(got->out, want.out, out_size);
    const ErrorStats lse = error_stats(got->lse, want.lse, lse_size);
    EXPECT_LE(out.max_abs, 1e-5) << to_string(out);
    EXPECT_LE(lse.max_abs, 1e-5) << to_string(lse);
    EXPECT_EQ(out.not_finite + lse.not_finite, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Cases, testing::ValuesIn(forward_rows()), RowName());
INSTANTIATE_TEST_SUITE_P(Rows, CasesFp32, testing::ValuesIn(forward_rows_of(Dtype::float32)), RowName());

}  // namespace
}  // namespace fa::test
