/// Random backward problems from a printed seed, by every row. FLASHATTN_TEST_SEED sets the first seed,
/// FLASHATTN_TEST_RANDOM the number of problems.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/backward/rows.hpp"

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

class BackwardRandom : public RowSuite {};

// Where the problem says deterministic, a second run gives the same bits.
TEST_P(BackwardRandom, HoldsTheBounds) {
  const std::uint64_t first = number_from("FLASHATTN_TEST_SEED", 20230717);
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

}  // namespace
}  // namespace fa::test
