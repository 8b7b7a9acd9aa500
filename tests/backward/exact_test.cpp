/// What must hold exactly, or between two calls: forward and backward together, zero gradients, independence
/// of batches, heads and threads, grouped heads as repeated ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tests/backward/rows.hpp"

namespace fa::test {
namespace {

class BackwardExact : public RowSuite {
 protected:
  /// The forward row that goes with this one: Auto's, of the same side.
  Outputs<float> forward(const Problem& p, const Inputs& in) const {
    return run_forward(p, in, on_host() ? Version::CPU : Version::Auto, row().side).got;
  }
};

// The whole path of a training step: forward's own out and lse, then backward.
TEST_P(BackwardExact, AfterForwardOfTheSameLibrary) {
  for (const char* line :
       {"B2 H4/2 M65 N97 D64 causal", "B1 H3 S130 D40 bshd", "B2 H2 S64 D128 packed causal",
        "B2 H2/1 M100 N33 D64 padded causal", "B1 H1 M1 N1 D16", "B1 H2 S77 D64 large"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    BackwardInputs inputs = make_backward_inputs(p);
    const Outputs<float> out = forward(p, inputs.in);
    inputs.out = out.out;
    inputs.lse = out.lse;
    check_row(p, inputs, row());
  }
}

// One key: P = exp(S - LSE) = 1 to the last bit, since the host computes S alike in both passes; dV = dO.
TEST_P(BackwardExact, OneKeyPassesDoutOn) {
  if (!on_host()) GTEST_SKIP() << "a device may sum S in another order in the two passes";
  for (const char* line : {"B2 H3 M1 N1 D16", "H1 M1 N1 D64 causal", "B1 H4 M1 N1 D33"}) {
    const Problem p = problem(line);
    BackwardInputs inputs = make_backward_inputs(p);
    const Outputs<float> out = forward(p, inputs.in);
    inputs.out = out.out;
    inputs.lse = out.lse;
    const auto got = run_row(p, inputs, row());
    ASSERT_TRUE(got);
    EXPECT_TRUE(bits_of(got->dv) == bits_of(inputs.dout)) << line;
  }
}

TEST_P(BackwardExact, WithoutKeysOrQueriesGradientsAreZero) {
  for (const char* sizes : {"B2 M0 N70", "B2 M70 N0", "B0 M4 N4", "B2 M0 N0", "B1 M0 N1", "B1 M1 N0"}) {
    for (const char* words :
         {"D64", "D17 bshd", "D64 padded seed 2", "D128 packed seed 4", "D64 grad-fp32 seed 5",
          "D40 broadcast deterministic seed 6", "D64 causal seed 7"}) {
      if (std::string(words).find("packed") != std::string::npos && sizes[3] != sizes[6]) continue;
      const Problem p = problem(std::string(sizes) + " H4/2 " + words);
      SCOPED_TRACE(to_string(p));
      const auto got = run_row(p, make_backward_inputs(p), row());
      if (!got) continue;
      for (const std::vector<float>* values : {&got->dq, &got->dk, &got->dv}) {
        for (const float x : *values) ASSERT_EQ(x, 0.0f);
      }
    }
  }
}

// Zeros have positive sign and there is nothing else: a row nobody sees, a query that sees nothing.
TEST_P(BackwardExact, UnseenKeysAndEmptyRowsAreZero) {
  for (const char* line : {"H2 M4 N200 D64 causal-top-left", "H2 M200 N4 D64 causal",
                           "H2/1 M90 N300 D32 window:5,0", "H2/1 M300 N90 D80 window-top-left:0,0"}) {
    check_row(problem(line), row());  // check_backward compares such rows exactly
  }
}

TEST_P(BackwardExact, ZeroDoutGivesZero) {
  const Problem p = problem("B2 H4/2 M65 N70 D64 causal");
  BackwardInputs inputs = make_backward_inputs(p);
  std::fill(inputs.dout.begin(), inputs.dout.end(), 0.0f);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects the problem";
  for (const std::vector<float>* values : {&got->dq, &got->dk, &got->dv}) {
    for (const float x : *values) ASSERT_EQ(x, 0.0f);
  }
}

TEST_P(BackwardExact, BatchesAndHeadsAreIndependent) {
  const Problem all = problem("B3 H2 M70 N90 D64 causal deterministic");
  const BackwardInputs inputs = make_backward_inputs(all);
  const auto together = run_row(all, inputs, row());
  if (!together) GTEST_SKIP() << "the row rejects the problem";
  Problem one = all;
  one.B = 1, one.H = 1, one.Hk = 1;
  const auto part = [](const std::vector<float>& from, std::int64_t slice, std::int64_t slices) {
    const std::ptrdiff_t count = static_cast<std::ptrdiff_t>(from.size()) / slices;
    return std::vector<float>(from.begin() + slice * count, from.begin() + (slice + 1) * count);
  };
  for (std::int64_t s = 0; s < 6; ++s) {
    BackwardInputs alone;
    alone.in = {part(inputs.in.q, s, 6), part(inputs.in.k, s, 6), part(inputs.in.v, s, 6)};
    alone.out = part(inputs.out, s, 6);
    alone.dout = part(inputs.dout, s, 6);
    alone.lse = part(inputs.lse, s, 6);
    const auto got = run_row(one, alone, row());
    ASSERT_TRUE(got);
    EXPECT_TRUE(bits_of(got->dq) == bits_of(part(together->dq, s, 6))) << s;
    EXPECT_TRUE(bits_of(got->dk) == bits_of(part(together->dk, s, 6))) << s;
    EXPECT_TRUE(bits_of(got->dv) == bits_of(part(together->dv, s, 6))) << s;
  }
}

// dK and dV of a key head are the sums over its query heads: those of the problem with K and V repeated.
TEST_P(BackwardExact, GroupedHeadsSumOverTheGroup) {
  for (const std::int64_t group : {2, 3, 8}) {
    Problem grouped = problem("B2 M40 N50 D32 causal");
    grouped.dtype_gradient = Dtype::float32;
    grouped.Hk = 2, grouped.H = 2 * group;
    const BackwardInputs inputs = make_backward_inputs(grouped);
    const auto got = run_row(grouped, inputs, row());
    if (!got) continue;
    Problem repeated = grouped;
    repeated.Hk = repeated.H;
    BackwardInputs more = inputs;
    more.in.k.clear(), more.in.v.clear();
    const std::ptrdiff_t head = static_cast<std::ptrdiff_t>(grouped.N * grouped.D);
    for (std::ptrdiff_t kv = 0; kv < 4; ++kv) {
      for (std::int64_t g = 0; g < group; ++g) {
        more.in.k.insert(more.in.k.end(), inputs.in.k.begin() + kv * head,
                         inputs.in.k.begin() + (kv + 1) * head);
        more.in.v.insert(more.in.v.end(), inputs.in.v.begin() + kv * head,
                         inputs.in.v.begin() + (kv + 1) * head);
      }
    }
    const auto parts = run_row(repeated, more, row());
    ASSERT_TRUE(parts);
    const auto sums = [&](const std::vector<float>& from) {
      std::vector<double> to(static_cast<std::size_t>(4 * head), 0.0);
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::size_t h = static_cast<std::size_t>(head);
        to[i / (h * static_cast<std::size_t>(group)) * h + i % h] += static_cast<double>(from[i]);
      }
      return to;
    };
    const std::vector<double> dk = sums(parts->dk), dv = sums(parts->dv);
    // 16-bit rows may round P and dS: each of a group's parts by its own.
    const double step = grouped.dtype == Dtype::float32   ? 1e-5
                        : grouped.dtype == Dtype::float16 ? 4e-3
                                                          : 3e-2;
    for (std::size_t i = 0; i < dk.size(); ++i) {
      ASSERT_NEAR(got->dk[i], dk[i], step * (1 + std::fabs(dk[i])));
      ASSERT_NEAR(got->dv[i], dv[i], step * (1 + std::fabs(dv[i])));
    }
    const double tolerance = step;
    for (std::size_t i = 0; i < got->dq.size(); ++i) ASSERT_NEAR(got->dq[i], parts->dq[i], tolerance);
  }
}

TEST_P(BackwardExact, TheNumberOfThreadsDoesNotMatter) {
  if (!on_host()) GTEST_SKIP() << "a device's own affair";
  for (const char* line : {"B2 H4/2 M300 N200 D64 causal", "B1 H8/1 M200 N300 D40", "B1 H1 M1000 N3 D64"}) {
    Problem p = problem(line);
    const BackwardInputs inputs = make_backward_inputs(p);
    std::vector<std::uint32_t> first;
    for (const int threads : {1, 2, 3, 5, 16}) {
      p.threads = threads;
      const auto got = run_row(p, inputs, row());
      ASSERT_TRUE(got);
      if (first.empty()) first = bits_of(*got);
      EXPECT_TRUE(bits_of(*got) == first) << threads << " threads, " << line;
    }
  }
}

TEST_P(BackwardExact, TwoHostThreadsAtOnce) {
  const Problem p = problem("B2 H4/2 M130 N130 D64 causal deterministic");
  const BackwardInputs inputs = make_backward_inputs(p);
  const auto want = run_row(p, inputs, row());
  if (!want) GTEST_SKIP() << "the row rejects the problem";
  std::vector<int> wrong(2, 0);
  const auto work = [&](std::size_t t) {
    for (int round = 0; round < 10; ++round) {
      wrong[t] += bits_of(run_backward(p, inputs, row().version, row().side).got) != bits_of(*want);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(wrong, std::vector<int>(2, 0));
}

// Gradients written as slices of one packed buffer, beside each other, are those of separate tensors.
TEST_P(BackwardExact, PackedGradientsAreTheSame) {
  const Problem packed = problem("B2 H4/2 S65 D64 causal packed deterministic");
  Problem apart = packed;
  apart.layout = Layout::bhsd;
  const BackwardInputs inputs = make_backward_inputs(packed);
  const auto got = run_row(packed, inputs, row()), want = run_row(apart, inputs, row());
  ASSERT_EQ(got.has_value(), want.has_value());
  if (got) {
    EXPECT_TRUE(bits_of(*got) == bits_of(*want));
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardExact, testing::ValuesIn(backward_rows()), RowName());

}  // namespace
}  // namespace fa::test
