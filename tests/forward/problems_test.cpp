/// Every row of the kernel table × the problems of problems.txt, against the fp64 oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

// FLASHATTN_TEST_PROBLEMS: another list, to run one's own lines.
std::string list_path() {
  if (const char* path = std::getenv("FLASHATTN_TEST_PROBLEMS")) return path;
#if defined(FLASHATTN_TESTS_DIR)
  return std::string(FLASHATTN_TESTS_DIR) + "/forward/problems.txt";
#else
  return (std::filesystem::path(__FILE__).parent_path() / "problems.txt").string();
#endif
}

struct Group {
  std::string name;
  std::vector<Problem> problems;
};

// The lines of one name, in the order of the file. A list that cannot be read is one group without problems,
// which fails.
const std::vector<Group>& groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> list;
    try {
      for (const NamedProblem& line : read_problem_file(list_path())) {
        const std::string name = line.name.empty() ? "unnamed" : line.name;
        auto it = std::find_if(list.begin(), list.end(), [&](const Group& g) { return g.name == name; });
        if (it == list.end()) it = list.insert(list.end(), {name, {}});
        it->problems.push_back(line.problem);
      }
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      list = {{"unreadable_list", {}}};
    }
    return list;
  }();
  return all;
}

struct RowGroup {
  Row row;
  Group group;
};

std::ostream& operator<<(std::ostream& os, const RowGroup& p) {
  return os << p.group.name << ", " << p.group.problems.size() << " problems";
}

std::vector<RowGroup> rows_by_groups() {
  std::vector<RowGroup> all;
  for (const Row& row : forward_rows())
    for (const Group& group : groups()) all.push_back({row, group});
  return all;
}

void skip_unless_runnable(const Row& row) {
  if (!row.built) GTEST_SKIP() << "skipped: this build left out " << row.kernel;
  if (row.side == Side::device && !have_device()) GTEST_SKIP() << "skipped: no CUDA device";
}

class Problems : public testing::TestWithParam<RowGroup> {
 protected:
  void SetUp() override { skip_unless_runnable(GetParam().row); }
};

TEST_P(Problems, HoldsTheBounds) {
  const Row& row = GetParam().row;
  ASSERT_FALSE(GetParam().group.problems.empty()) << "no problems in " << list_path();
  for (const Problem& problem : GetParam().group.problems) {
    const Watchdog watchdog(120, to_string(problem));
    check_row(problem, row);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Problems, testing::ValuesIn(rows_by_groups()),
                         [](const testing::TestParamInfo<RowGroup>& of) {
                           return row_name(of.param.row) + "_" + of.param.group.name;
                         });

class ProblemList : public RowSuite {};

// A row that rejected everything would pass the suite above. It takes a twentieth of the list at the least,
// the CPU backend all of it.
TEST_P(ProblemList, IsNotRejectedWhole) {
  int taken = 0, all = 0;
  for (const Group& group : groups()) {
    for (Problem problem : group.problems) {
      problem.dtype = row().dtype;
      ++all;
      if (explain_problem(problem, row()).runs) ++taken;
    }
  }
  RecordProperty("taken", taken);
  EXPECT_GE(taken * 20, all) << row().kernel << " takes " << taken << " of " << all;
  if (row().version == Version::CPU) {
    EXPECT_EQ(taken, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ProblemList, testing::ValuesIn(forward_rows()), RowName());

// The list keeps what it is for: these sizes, layouts and masks appear in it.
TEST(ProblemFile, CoversTheEdges) {
  std::map<std::int64_t, int> m, n, ratio, head;
  std::map<std::int64_t, int> m64, n64, ratio64;  // at D64, which some rows take alone
  std::map<Layout, int> layout;
  int left_only = 0, right_only = 0, both = 0, diagonal = 0, top_left = 0, wide = 0, tall = 0, no_lse = 0,
      no_keys = 0, no_queries = 0, no_batch = 0, unequal_heads = 0, other_dtype = 0, zero_scale = 0,
      negative_scale = 0, total = 0;
  for (const Group& group : groups()) {
    for (const Problem& p : group.problems) {
      ++total, ++m[p.M], ++n[p.N], ++ratio[p.H / p.Hk], ++head[p.D], ++layout[p.layout];
      if (p.D == 64 && p.Dv == 64) ++m64[p.M], ++n64[p.N], ++ratio64[p.H / p.Hk];
      left_only += p.mask.left > 0 && p.mask.right < 0;
      right_only += p.mask.left < 0 && p.mask.right > 0;
      both += p.mask.left > 0 && p.mask.right > 0;
      diagonal += p.mask.left == 0 && p.mask.right == 0;
      top_left += p.mask.alignment == Alignment::top_left;
      wide += p.M<p.N, tall += p.M> p.N;
      no_lse += !p.lse, no_keys += p.N == 0, no_queries += p.M == 0, no_batch += p.B == 0;
      unequal_heads += p.D != p.Dv, other_dtype += p.dtype_out != Dtype::none;
      zero_scale += p.scale == 0.0f, negative_scale += p.scale < 0.0f;
    }
  }
  EXPECT_GE(total, 300);
  for (const std::int64_t edge :
       {1, 2, 7, 15, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 250, 257, 1000}) {
    EXPECT_GE(m[edge], 2) << "M" << edge;
    EXPECT_GE(n[edge], 2) << "N" << edge;
  }
  for (const std::int64_t edge : {1,  2,  7,  8,   9,   15,  31,  32,  33,  63,  64,  65,
                                  95, 96, 97, 127, 128, 129, 191, 192, 193, 250, 257, 1000}) {
    EXPECT_GE(m64[edge], 2) << "M" << edge << " D64";
    EXPECT_GE(n64[edge], 2) << "N" << edge << " D64";
  }
  for (const std::int64_t r : {1, 2, 3, 8}) {
    EXPECT_GE(ratio[r], 2) << "H/Hk = " << r;
    EXPECT_GE(ratio64[r], 2) << "H/Hk = " << r << ", D64";
  }
  for (const std::int64_t d : {1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 257})
    EXPECT_GE(head[d], 1) << "D" << d;
  for (const Layout l :
       {Layout::bhsd, Layout::bshd, Layout::packed, Layout::padded, Layout::unaligned, Layout::broadcast}) {
    EXPECT_GE(layout[l], 4) << static_cast<int>(l);
  }
  for (const int count : {left_only, right_only, both, diagonal, top_left, wide, tall, no_lse, no_keys,
                          no_queries, no_batch, unequal_heads, other_dtype, zero_scale}) {
    EXPECT_GE(count, 2);
  }
  EXPECT_GE(negative_scale, 2);
}

}  // namespace
}  // namespace fa::test
