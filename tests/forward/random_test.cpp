/// Random problems from a printed seed, by every row. FLASHATTN_TEST_SEED sets the first seed,
/// FLASHATTN_TEST_RANDOM the number of problems. FLASHATTN_TEST_RANDOM_LONG adds as many problems, in tests
/// of a hundred each, for every row of 16 bits; its own code runs all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

std::uint64_t first_seed() {
  return number_from("FLASHATTN_TEST_SEED", 20220527);
}

class Random : public RowSuite {};

TEST_P(Random, HoldsTheBounds) {
  const std::uint64_t first = first_seed();
  const std::uint64_t count = number_from("FLASHATTN_TEST_RANDOM", 300);
  ASSERT_GE(count, 1u);
  std::printf("FLASHATTN_TEST_SEED=%llu FLASHATTN_TEST_RANDOM=%llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(count));
  int ran = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FLASHATTN_TEST_SEED=" + std::to_string(seed) + " FLASHATTN_TEST_RANDOM=1");
    Problem problem = random_problem(seed);
    // A row whose tiles hold one head size would meet a handful of the problems; it gets all of them at D64.
    const bool one_head_size = row().version >= Version::V3 && row().version <= Version::V6;
    if (one_head_size && !takes(problem, row())) problem.D = problem.Dv = 64;
    const Watchdog watchdog(120, to_string(problem));
    ran += check_row(problem, row()) ? 1 : 0;
  }
  RecordProperty("ran", ran);
  // With a row's own rejections, one call of three hundred would still be a test; none is not.
  EXPECT_TRUE(ran > 0 || count < 100) << row().kernel << " rejected all of " << count;
  EXPECT_TRUE(!on_host() || HasFailure() || static_cast<std::uint64_t>(ran) == count) << ran;
}

INSTANTIATE_TEST_SUITE_P(Rows, Random, testing::ValuesIn(forward_rows()), RowName());

// ---- many, for rows of 16 bits -----------------------------------------------------------------------

/// The seed's problem, changed as little as the row needs to take it with its own code. Every fourth has a
/// head size beyond those of random_problem.
Problem problem_for(const Row& row, std::uint64_t seed) {
  constexpr std::int64_t kLarge[] = {136, 160, 184, 192, 200, 224, 248, 256};
  Problem problem = random_problem(seed);
  if (seed % 4 == 0) problem.D = problem.Dv = kLarge[seed / 4 % std::size(kLarge)];
  // Without a query nobody's code runs; Random has such problems.
  problem.B = std::max<std::int64_t>(problem.B, 1);
  problem.M = std::max<std::int64_t>(problem.M, 1);
  if (problem.layout == Layout::packed) problem.N = problem.M;
  if (takes(problem, row)) return problem;
  if (problem.layout == Layout::unaligned) problem.layout = Layout::padded;
  problem.D = (problem.D + 7) / 8 * 8;
  problem.Dv = (problem.Dv + 7) / 8 * 8;
  if (row.version == Version::V8) {
    problem.dtype_out = Dtype::none;
    if (problem.scale.value_or(1.0f) <= 0) problem.scale.reset();
    if (problem.layout == Layout::broadcast) problem.layout = Layout::bhsd;
  }
  if (!takes(problem, row)) problem.Dv = problem.D;
  if (!takes(problem, row)) problem.D = problem.Dv = 64;
  return problem;
}

class ManyRandom : public testing::TestWithParam<RowSeeds> {
 protected:
  void SetUp() override { skip_unless_available(GetParam().row); }
};

TEST_P(ManyRandom, HoldsTheBounds) {
  const auto& [row, chunk, first, count] = GetParam();
  std::printf("FLASHATTN_TEST_SEED=%llu FLASHATTN_TEST_RANDOM_LONG=%llu\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(count));
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FLASHATTN_TEST_SEED=" + std::to_string(seed) + " FLASHATTN_TEST_RANDOM_LONG=1");
    const Problem problem = problem_for(row, seed);
    EXPECT_TRUE(takes(problem, row)) << row.kernel << " does not take " << to_string(problem);
    const Watchdog watchdog(120, to_string(problem));
    EXPECT_TRUE(check_row(problem, row)) << to_string(problem);
  }
}

// No test where the variable is not set.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ManyRandom);
INSTANTIATE_TEST_SUITE_P(Rows, ManyRandom,
                         testing::ValuesIn(chunks_of_seeds(forward_rows_of_16_bits(), first_seed())),
                         RowSeedsName());

}  // namespace
}  // namespace fa::test
