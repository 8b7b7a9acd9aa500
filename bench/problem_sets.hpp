/// Finds problem files and reads them.
#pragma once

#include <string>
#include <vector>

#include "tests/support/problem.hpp"

namespace fa::bench {

struct ProblemSet {
  std::string name;                        // "gpt2_small"
  std::vector<test::NamedProblem> points;  // every one has a name that can stand in a row's
};

/// Folders that may hold problem files, first found first: `asked` (--problems-dir; may be empty), "problems"
/// beside the executable, the source tree's.
std::vector<std::string> problem_folders(const std::string& asked);

/// A file's path, or the name of a file in one of the folders, with or without ".txt".
/// Throws std::runtime_error naming what was looked for and where.
ProblemSet read_problem_set(const std::string& path_or_name, const std::vector<std::string>& folders);

/// One line as a set of its own. Throws std::invalid_argument naming the word.
ProblemSet problem_from_line(const std::string& line);

}  // namespace fa::bench
