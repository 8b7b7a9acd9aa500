/// Suites over the rows of the kernel table. For test programs alone: it needs GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/problem.hpp"
#include "tests/support/table_rows.hpp"

namespace fa::test {

/// The suffix gtest gives a test of this row.
struct RowName {
  std::string operator()(const testing::TestParamInfo<Row>& info) const { return row_name(info.param); }
};

/// How many calls of a row ran, and how many it rejected, since the suite began.
struct Tally {
  int ran = 0, rejected = 0;
};
inline std::map<std::string, Tally>& tallies() {
  static std::map<std::string, Tally> all;
  return all;
}

/// A suite over the rows. A row on a device is skipped where there is none, as is one whose code was left
/// out. A row that rejected every one of fifty calls and more fails the suite.
class RowSuite : public testing::TestWithParam<Row> {
 protected:
  static void TearDownTestSuite() {
    for (const auto& [kernel, tally] : tallies()) {
      EXPECT_FALSE(tally.ran == 0 && tally.rejected >= 50)
          << kernel << " rejected all of " << tally.rejected << " calls";
    }
    tallies().clear();
  }
  void SetUp() override {
    if (!row().built) GTEST_SKIP() << "skipped: this build left out " << row().kernel;
    if (row().side == Side::device && !have_device()) GTEST_SKIP() << "skipped: no CUDA device";
  }
  const Row& row() const { return GetParam(); }
  bool on_host() const { return row().side == Side::host; }
  /// The problem of the line, in the row's dtype.
  Problem problem(const std::string& line) const {
    Problem p = parse_problem(line);
    p.dtype = row().dtype;
    return p;
  }
};

}  // namespace fa::test
