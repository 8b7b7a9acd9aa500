/// Random problems from a printed seed, by every row. FLASHATTN_TEST_SEED sets the first seed,
/// FLASHATTN_TEST_RANDOM the number of problems.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (*end != '\0') throw std::invalid_argument(std::string(variable) + " = " + text + " is not a number");
  return value;
}

class Random : public RowSuite {};

TEST_P(Random, HoldsTheBounds) {
  const std::uint64_t first = number_from("FLASHATTN_TEST_SEED", 20220527);
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

}  // namespace
}  // namespace fa::test
