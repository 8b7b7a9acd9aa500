#include "bench/problem_sets.hpp"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace fa::bench {

namespace {

namespace fs = std::filesystem;

std::string row_name(const test::NamedProblem& point) {
  std::string name = point.name.empty() ? test::to_string(point.problem) : point.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  std::replace(name.begin(), name.end(), '/', ':');
  return name;
}

}  // namespace

std::vector<std::string> problem_folders(const std::string& asked) {
  std::vector<std::string> folders;
  if (!asked.empty()) folders.push_back(asked);
  std::error_code ignored;
  const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
  if (!self.empty()) folders.push_back((self.parent_path() / "problems").string());
#if defined(FLASHATTN_BENCH_PROBLEMS_DIR)
  folders.push_back(FLASHATTN_BENCH_PROBLEMS_DIR);
#endif
  return folders;
}

ProblemSet read_problem_set(const std::string& path_or_name, const std::vector<std::string>& folders) {
  std::vector<fs::path> candidates = {path_or_name};
  for (const std::string& folder : folders) {
    candidates.push_back(fs::path(folder) / path_or_name);
    candidates.push_back(fs::path(folder) / (path_or_name + ".txt"));
  }
  for (const fs::path& candidate : candidates) {
    std::error_code ignored;
    if (!fs::is_regular_file(candidate, ignored)) continue;
    ProblemSet set{candidate.stem().string(), test::read_problem_file(candidate.string())};
    for (test::NamedProblem& point : set.points) point.name = row_name(point);
    return set;
  }
  std::string where = "the working directory";
  for (const std::string& folder : folders) where += ", " + folder;
  throw std::runtime_error("no problem file '" + path_or_name + "' (looked in " + where + ")");
}

ProblemSet problem_from_line(const std::string& line) {
  test::NamedProblem point{"", test::parse_problem(line)};
  point.name = row_name(point);
  return {"problem", {point}};
}

}  // namespace fa::bench
