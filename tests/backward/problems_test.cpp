/// Every backward row of the kernel table × the problems of problems.txt, against the fp64 oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/backward/rows.hpp"

namespace fa::test {
namespace {

// FLASHATTN_TEST_PROBLEMS: another list, to run one's own lines.
std::string list_path() {
  if (const char* path = std::getenv("FLASHATTN_TEST_PROBLEMS")) return path;
  return std::string(FLASHATTN_TESTS_DIR) + "/backward/problems.txt";
}

using Groups = std::map<std::string, std::vector<Problem>>;

// The lines by their names. A list that cannot be read is one group without problems, which fails.
const Groups& groups() {
  static const Groups all = [] {
    Groups list;
    try {
      for (const NamedProblem& line : read_problem_file(list_path())) {
        list[line.name.empty() ? "unnamed" : line.name].push_back(line.problem);
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
  std::string group;
};

std::ostream& operator<<(std::ostream& os, const RowGroup& p) {
  return os << p.group;
}

std::vector<RowGroup> rows_by_groups() {
  std::vector<RowGroup> all;
  for (const Row& row : backward_rows())
    for (const auto& [name, problems] : groups()) all.push_back({row, name});
  return all;
}

class BackwardProblems : public testing::TestWithParam<RowGroup> {
 protected:
  void SetUp() override { skip_unless_available(GetParam().row); }
};

TEST_P(BackwardProblems, HoldTheBounds) {
  const std::vector<Problem>& problems = groups().at(GetParam().group);
  ASSERT_FALSE(problems.empty()) << "no problems in " << list_path();
  for (const Problem& problem : problems) {
    const Watchdog watchdog(120, to_string(problem));
    check_row(problem, GetParam().row);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardProblems, testing::ValuesIn(rows_by_groups()),
                         [](const testing::TestParamInfo<RowGroup>& of) {
                           return row_name(of.param.row) + "_" + of.param.group;
                         });

class BackwardProblemList : public RowSuite {};

// A row that rejected everything would pass the suite above. It takes nine tenths of the list at the least,
// the CPU backend all of it.
TEST_P(BackwardProblemList, IsNotRejectedWhole) {
  int taken = 0, all = 0;
  for (const auto& [name, problems] : groups()) {
    for (Problem problem : problems) {
      problem.dtype = row().dtype;
      ++all;
      if (explain_problem(problem, row()).runs) ++taken;
    }
  }
  EXPECT_GE(taken * 10, all * 9) << row().kernel << " takes " << taken << " of " << all;
  if (row().version == Version::CPU) {
    EXPECT_EQ(taken, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardProblemList, testing::ValuesIn(backward_rows()), RowName());

// The list keeps what it is for: these sizes, layouts and masks appear in it.
TEST(BackwardProblemFile, CoversTheEdges) {
  std::map<std::int64_t, int> m, n, ratio, head;
  std::map<Layout, int> layout;
  int window = 0, top_left = 0, wide = 0, tall = 0, no_keys = 0, no_queries = 0, no_batch = 0, other_dv = 0,
      gradients = 0, deterministic = 0, dout = 0, zero_scale = 0, negative_scale = 0, large = 0, total = 0;
  for (const auto& [name, problems] : groups()) {
    for (const Problem& p : problems) {
      ++total, ++m[p.M], ++n[p.N], ++ratio[p.H / p.Hk], ++head[p.D], ++layout[p.layout];
      window += p.mask.left > 0 || p.mask.right > 0;
      top_left += p.mask.alignment == Alignment::top_left;
      wide += p.M < p.N ? 1 : 0, tall += p.M > p.N ? 1 : 0;
      no_keys += p.N == 0, no_queries += p.M == 0, no_batch += p.B == 0, other_dv += p.D != p.Dv;
      gradients += p.dtype_gradient != Dtype::none, deterministic += p.deterministic;
      dout += p.dout_broadcast, large += p.data == Data::large;
      zero_scale += p.scale == 0.0f, negative_scale += p.scale < 0.0f;
    }
  }
  EXPECT_GE(total, 200);
  for (const std::int64_t edge :
       {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 250, 257}) {
    EXPECT_GE(m[edge], 2) << "M" << edge;
    EXPECT_GE(n[edge], 2) << "N" << edge;
  }
  for (const std::int64_t r : {1, 2, 3, 8}) EXPECT_GE(ratio[r], 4) << "H/Hk = " << r;
  for (const std::int64_t d :
       {1, 2, 3, 8, 31, 32, 33, 63, 64, 65, 72, 80, 96, 104, 127, 128, 129, 192, 256, 257})
    EXPECT_GE(head[d], 1) << "D" << d;
  for (const Layout l :
       {Layout::bhsd, Layout::bshd, Layout::packed, Layout::padded, Layout::unaligned, Layout::broadcast}) {
    EXPECT_GE(layout[l], 6) << static_cast<int>(l);
  }
  for (const int count : {window, top_left, wide, tall, no_keys, no_queries, no_batch, other_dv, gradients,
                          deterministic, dout, zero_scale, negative_scale, large}) {
    EXPECT_GE(count, 2);
  }
}

}  // namespace
}  // namespace fa::test
