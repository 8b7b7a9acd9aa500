/// Random backward problems from a printed seed, by every row. FLASHATTN_TEST_SEED sets the first seed,
/// FLASHATTN_TEST_RANDOM the number of problems. FLASHATTN_TEST_RANDOM_LONG adds as many problems, in tests
/// of a hundred each, for every row; its own code runs all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "tests/backward/rows.hpp"

namespace fa::test {
namespace {

std::uint64_t first_seed() {
  return number_from("FLASHATTN_TEST_SEED", 20230717);
}

class BackwardRandom : public RowSuite {};

// Where the problem says deterministic, a second run gives the same bits.
TEST_P(BackwardRandom, HoldsTheBounds) {
  const std::uint64_t first = first_seed();
  const std::uint64_t count = number_from("FLASHATTN_TEST_RANDOM", 300);
  ASSERT_GE(count, 1u);
  std::printf("FLASHATTN_TEST_SEED=%llu FLASHATTN_TEST_RANDOM=%llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(count));
  int ran = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FLASHATTN_TEST_SEED=" + std::to_string(seed) + " FLASHATTN_TEST_RANDOM=1");
    Problem problem = random_backward_problem(seed);
    problem.dtype = row().dtype;
    const Watchdog watchdog(120, to_string(problem));
    const BackwardInputs inputs = make_backward_inputs(problem);
    const auto got = run_row(problem, inputs, row());
    if (!got) continue;
    ++ran;
    EXPECT_EQ(check_backward(problem, inputs, *got), "");
    if (!problem.deterministic) continue;
    const auto again = run_row(problem, inputs, row());
    ASSERT_TRUE(again);
    EXPECT_TRUE(bits_of(*got) == bits_of(*again)) << "not repeatable: " << to_string(problem);
  }
  RecordProperty("ran", ran);
  EXPECT_TRUE(ran > 0 || count < 100) << row().kernel << " rejected all of " << count;
  EXPECT_TRUE(!on_host() || HasFailure() || static_cast<std::uint64_t>(ran) == count) << ran;
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardRandom, testing::ValuesIn(backward_rows()), RowName());

// ---- many ----------------------------------------------------------------------------------------------

/// The seed's problem, every fourth with a head size beyond those of random_backward_problem, up to the
/// largest that every row takes.
Problem problem_for(std::uint64_t seed) {
  constexpr std::int64_t kLarge[] = {131, 136, 160, 191, 192, 200, 224, 255, 256};
  Problem problem = random_backward_problem(seed);
  // Without a gradient to write nobody's code runs; BackwardRandom has such problems.
  problem.B = std::max<std::int64_t>(problem.B, 1);
  if (problem.N == 0) problem.M = std::max<std::int64_t>(problem.M, 1);
  if (problem.layout == Layout::packed) problem.N = problem.M;
  if (seed % 4 != 0) return problem;
  const bool same = problem.D == problem.Dv;
  problem.D = kLarge[seed / 4 % std::size(kLarge)];
  if (same) problem.Dv = problem.D;
  return problem;
}

class BackwardManyRandom : public testing::TestWithParam<RowSeeds> {
 protected:
  void SetUp() override { skip_unless_available(GetParam().row); }
};

TEST_P(BackwardManyRandom, HoldsTheBounds) {
  const auto& [row, chunk, first, count] = GetParam();
  std::printf("FLASHATTN_TEST_SEED=%llu FLASHATTN_TEST_RANDOM_LONG=%llu\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(count));
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FLASHATTN_TEST_SEED=" + std::to_string(seed) + " FLASHATTN_TEST_RANDOM_LONG=1");
    const Problem problem = problem_for(seed);
    EXPECT_TRUE(takes(problem, row)) << row.kernel << " does not take " << to_string(problem);
    const Watchdog watchdog(120, to_string(problem));
    EXPECT_TRUE(check_row(problem, row)) << to_string(problem);
  }
}

// No test where the variable is not set.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackwardManyRandom);
INSTANTIATE_TEST_SUITE_P(Rows, BackwardManyRandom,
                         testing::ValuesIn(chunks_of_seeds(backward_rows(), first_seed())), RowSeedsName());

}  // namespace
}  // namespace fa::test
