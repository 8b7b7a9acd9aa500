/// Suites over the rows of the kernel table. For test programs alone: it needs GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tests/support/problem.hpp"
#include "tests/support/table_rows.hpp"

namespace fa::test {

/// The suffix gtest gives a test of this row.
struct RowName {
  std::string operator()(const testing::TestParamInfo<Row>& info) const { return row_name(info.param); }
};

/// The number that an environment variable names, up to 2^53; `otherwise` where it is not set. Ends the
/// program with 2 where it names none: parameters of tests are read before a test could fail.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* set = std::getenv(variable);
  if (set == nullptr || *set == '\0') return otherwise;
  const std::string_view text = set;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > std::uint64_t{1} << 53) {
    std::fprintf(stderr, "%s = '%s' must be a number from 0 to 2^53\n", variable, set);
    std::exit(2);
  }
  return value;
}

// ---- a row that rejects everything -----------------------------------------------------------------------

/// How many calls of a kernel ran, and how many it rejected.
struct Tally {
  int ran = 0, rejected = 0;
};

/// By suite and kernel.
inline std::map<std::string, std::map<std::string, Tally>>& tallies_by_suite() {
  static std::map<std::string, std::map<std::string, Tally>> all;
  return all;
}

/// Those of the suite that runs, by kernel. "Rows/Cases" is Cases.
inline std::map<std::string, Tally>& tallies() {
  const testing::TestSuite* suite = testing::UnitTest::GetInstance()->current_test_suite();
  std::string name = suite == nullptr ? "none" : suite->name();
  name.erase(0, name.rfind('/') + 1);
  return tallies_by_suite()[name];
}

/// This process runs a part of the tests, and may meet none of the calls that a row takes.
inline bool one_shard_of_many() {
  return number_from("GTEST_TOTAL_SHARDS", 1) > 1;
}

/// What one shard cannot judge it says at its end, for whoever sums the shards: bench/gpu_suite.sh does.
class TallyLines : public testing::Environment {
 public:
  void TearDown() override {
    if (!one_shard_of_many()) return;
    for (const auto& [suite, kernels] : tallies_by_suite()) {
      for (const auto& [kernel, tally] : kernels) {
        std::printf("TALLY %s %s ran %d rejected %d\n", suite.c_str(), kernel.c_str(), tally.ran,
                    tally.rejected);
      }
    }
    tallies_by_suite().clear();
  }
};
inline testing::Environment* const tally_lines = testing::AddGlobalTestEnvironment(new TallyLines);

// ---- suites ----------------------------------------------------------------------------------------------

/// Skips the test of a row on a device where there is none, and of one whose code was left out.
inline void skip_unless_available(const Row& row) {
  if (!row.built) GTEST_SKIP() << "skipped: this build left out " << row.kernel;
  if (row.side == Side::device && !have_device()) GTEST_SKIP() << "skipped: no CUDA device";
}

/// A suite over the rows that are available. A row that rejected every one of fifty calls and more fails the
/// suite, as gpu_suite.sh fails the shards together.
class RowSuite : public testing::TestWithParam<Row> {
 protected:
  static void TearDownTestSuite() {
    if (one_shard_of_many()) return;
    for (const auto& [suite, kernels] : tallies_by_suite()) {
      for (const auto& [kernel, tally] : kernels) {
        EXPECT_FALSE(tally.ran == 0 && tally.rejected >= 50)
            << suite << ": " << kernel << " rejected all of " << tally.rejected << " calls";
      }
    }
    tallies_by_suite().clear();
  }
  void SetUp() override { skip_unless_available(row()); }
  const Row& row() const { return GetParam(); }
  bool on_host() const { return row().side == Side::host; }
  /// The problem of the line, in the row's dtype.
  Problem problem(const std::string& line) const {
    Problem p = parse_problem(line);
    p.dtype = row().dtype;
    return p;
  }
};

// ---- many random problems --------------------------------------------------------------------------------

/// The seeds [first, first + count) by one row.
struct RowSeeds {
  Row row;
  std::uint64_t chunk, first, count;
};

inline std::ostream& operator<<(std::ostream& os, const RowSeeds& of) {
  return os << of.row.kernel << ", FLASHATTN_TEST_SEED=" << of.first
            << " FLASHATTN_TEST_RANDOM_LONG=" << of.count;
}

/// FLASHATTN_TEST_RANDOM_LONG seeds for each of the rows, a hundred a test: shards share them out. None where
/// the variable is not set.
inline std::vector<RowSeeds> chunks_of_seeds(const std::vector<Row>& rows, std::uint64_t first_seed) {
  constexpr std::uint64_t kChunk = 100;
  const std::uint64_t all = number_from("FLASHATTN_TEST_RANDOM_LONG", 0);
  std::vector<RowSeeds> chunks;
  for (const Row& row : rows) {
    for (std::uint64_t done = 0; done < all; done += kChunk)
      chunks.push_back({row, done / kChunk, first_seed + done, std::min(kChunk, all - done)});
  }
  return chunks;
}

/// The suffix gtest gives a test of these seeds.
struct RowSeedsName {
  std::string operator()(const testing::TestParamInfo<RowSeeds>& info) const {
    return row_name(info.param.row) + "_" + std::to_string(info.param.chunk);
  }
};

}  // namespace fa::test
