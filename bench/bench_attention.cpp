// bench_attention: attention problems from text files, measured by the protocol of bench/README.md and
// reported through Google Benchmark.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <regex>

#include <benchmark/benchmark.h>

#include "bench/ablations.hpp"
#include "bench/json.hpp"
#include "bench/options.hpp"
#include "bench/problem_sets.hpp"
#include "bench/program.hpp"
#include "bench/run_facts.hpp"
#include "bench/runner.hpp"
#include "bench/table.hpp"

namespace fa::bench {

namespace {

// Points with fewer operations come first in it, so that every model is seen where time runs out.
constexpr double kLightFlops = 1e10;

bool names_problems(const Options& options) {
  return !options.problem_lines.empty() || !options.problem_files.empty();
}

std::unique_ptr<Side> pick_side(const Options& options) {
  const bool for_host =
      options.side == "host" || (options.side == "auto" && !options.selection.threads.empty());
  std::string why_not = "--side host was asked for, or --threads";
  std::unique_ptr<Side> device = for_host ? nullptr : device_side(&why_not);
  if (device) return device;
  if (options.side == "device") throw UsageError("--side device: " + why_not);
  if (!options.selection.ablations.empty())
    throw UsageError(std::string(flag_of(options.selection)) + " needs a device: " + why_not);
  if (!options.mode.empty()) throw UsageError("--mode needs a device: " + why_not);
  return host_side();
}

Protocol pick_protocol(const Options& options, bool first_look, const Side& side) {
  if (options.protocol == "full") return full_protocol();
  if (options.protocol == "short") return short_protocol();
  return first_look ? side.default_run().protocol : full_protocol();
}

struct NamedSet {
  ProblemSet problems;
  bool both_thread_counts;
};

std::vector<NamedSet> pick_problems(const Options& options, const Side& side) {
  const std::vector<std::string> folders = problem_folders(options.problems_dir);
  std::vector<NamedSet> sets;
  for (const std::string& line : options.problem_lines) sets.push_back({problem_from_line(line), true});
  for (const std::string& file : options.problem_files)
    sets.push_back({read_problem_set(file, folders), false});
  if (!sets.empty()) return sets;
  if (!options.selection.ablations.empty()) {
    ProblemSet ladder = read_problem_set("ladder", folders);
    std::erase_if(ladder.points, [&](const test::NamedProblem& point) {
      const Mask& mask = point.problem.mask;
      return mask.left >= 0 || mask.right >= 0 || !have_ablations(options.selection, point.problem);
    });
    return {{ladder, false}};
  }
  const DefaultRun run = side.default_run();
  for (const std::string& name : options.full ? run.full : run.sets) {
    sets.push_back({read_problem_set(name, folders), sets.empty()});
  }
  return sets;
}

/// Google Benchmark's filter, applied to whole groups, so that what no row needs is neither run nor counted.
bool selected(const Group& group) {
  std::string filter = benchmark::GetBenchmarkFilter();
  if (filter.empty() || filter == "all") return true;
  const bool negated = filter[0] == '-';
  if (negated) filter.erase(0, 1);
  const std::regex pattern(filter, std::regex::extended);
  for (const Row& row : group.rows) {
    if (std::regex_search(row.name, pattern) != negated) return true;
  }
  return false;
}

std::vector<Group> make_groups(const Options& options, bool first_look, Side& side, Runner& runner) {
  const bool all = !names_problems(options) && options.selection.ablations.empty();
  std::vector<Group> groups = {runner.ceilings(options.selection, all)};
  if (all) groups.push_back(runner.host_costs(options.selection));
  for (const NamedSet& set : pick_problems(options, side)) {
    for (const test::NamedProblem& point : set.problems.points) {
      Group group;
      group.name = set.problems.name + "/" + point.name;
      group.problem = point.problem;
      for (RowPlan& plan : side.plan(point.problem, options.selection, set.both_thread_counts)) {
        Row row;
        row.name = group.name + "/" + plan.key;
        row.plan = std::move(plan);
        row.dtype = point.problem.dtype;
        group.rows.push_back(std::move(row));
      }
      groups.push_back(std::move(group));
    }
  }
  const bool some_rows = std::any_of(groups.begin(), groups.end(), [](const Group& group) {
    return group.kind == Group::Kind::problem && !group.rows.empty();
  });
  if (!options.selection.ablations.empty() && !some_rows)
    throw UsageError(std::string(flag_of(options.selection)) + ": none of these rungs is for these problems");
  std::erase_if(groups, [](const Group& group) { return group.rows.empty() || !selected(group); });
  if (first_look && side.default_run().light_first) {
    std::stable_partition(groups.begin(), groups.end(), [](const Group& group) {
      return group.kind != Group::Kind::problem || group.problem.flops() < kLightFlops;
    });
  }
  return groups;
}

/// Ceilings are not the library's.
bool measures_the_library(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    if (group.kind == Group::Kind::ceilings) continue;
    for (const Row& row : group.rows) {
      if (row.plan.role == RowPlan::Role::kernel && row.result.state == RowResult::State::measured)
        return true;
    }
  }
  return false;
}

void list(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    for (const Row& row : group.rows) {
      std::cout << row.name;
      if (group.kind == Group::Kind::problem) std::cout << ": " << test::to_string(group.problem);
      std::cout << '\n';
    }
  }
}

std::string duration(double seconds) {
  char text[48];
  if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

/// Says on stderr how far a run is, before each group.
class Progress {
 public:
  Progress(const Runner& runner, const std::vector<Group>& groups) : runner_(runner), groups_(groups) {}

  void starts(const Group& group) {
    double left = 0;
    for (const Group& other : groups_) left += runner_.expected(other);
    if (runner_.limits().run_seconds > 0) {
      left = std::min(left, std::max(0.0, runner_.limits().run_seconds - runner_.elapsed()));
    }
    std::fprintf(stderr, "[%d/%zu] %s, about %s left\n", ++started_, groups_.size(), group.name.c_str(),
                 duration(left).c_str());
  }

 private:
  const Runner& runner_;
  const std::vector<Group>& groups_;
  int started_ = 0;
};

/// Google Benchmark 1.8 tells a skipped row from a failed one; 1.7 has only the error.
template <class State>
void skip(State& state, const std::string& reason) {
  const std::string text = "skipped: " + reason;
  if constexpr (requires { state.SkipWithMessage(text.c_str()); }) {
    state.SkipWithMessage(text.c_str());
  } else {
    state.SkipWithError(text.c_str());
  }
}

void report(benchmark::State& state, const Group& group, const Row& row) {
  const RowResult& r = row.result;
  if (r.state == RowResult::State::skipped) {
    skip(state, r.reason);
  } else if (r.state != RowResult::State::measured) {
    state.SkipWithError(r.reason.c_str());
  }
  for (auto _ : state) state.SetIterationTime(r.seconds);
  if (r.state != RowResult::State::measured) return;
  if (r.flops > 0) state.counters["TFLOP/s"] = r.flops / r.seconds * 1e-12;
  if (r.bytes > 0) state.counters["GB/s"] = r.bytes / r.seconds * 1e-9;
  if (!r.ceiling.empty()) state.counters["of_ceiling"] = r.of_ceiling;
  for (const RowResult::Ratio& ratio : r.ratios) state.counters["ratio:" + ratio.to] = ratio.value;
  if (r.bare) {
    state.counters["bare_us"] = r.bare->seconds * 1e6;
    state.counters["over_us"] = r.bare->over * 1e6;
  }
  if (group.noise) state.counters["noise"] = *group.noise;
  std::string label = r.kernel;
  if (r.threads > 0) label += " threads:" + std::to_string(r.threads);
  if (!r.ceiling.empty()) label += " ceiling:" + r.ceiling;
  state.SetLabel(label);
}

void register_rows(std::vector<Group>& groups, Runner& runner, Progress& progress) {
  for (Group& group : groups) {
    for (const Row& row : group.rows) {
      const auto body = [&group, &row, &runner, &progress](benchmark::State& state) {
        if (!group.done) {
          progress.starts(group);
          runner.run(group);
        }
        report(state, group, row);
      };
      benchmark::RegisterBenchmark(row.name.c_str(), body)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

int run(int argc, char** argv) {
  Facts facts = run_facts(argc, argv);
  bool other_format = false;
  for (int i = 1; i < argc; ++i) other_format |= std::strncmp(argv[i], "--benchmark_format", 18) == 0;

  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::cout << help_text();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (argc > 1) throw UsageError(std::string("unknown flag '") + argv[1] + "'");

  if (!options.selection.ablations.empty()) require_ablations(options.selection);
  const std::unique_ptr<Side> side = pick_side(options);
  // What a person starts to see what there is: no problem named.
  const bool first_look = !options.full && !names_problems(options) && options.selection.ablations.empty();
  const Protocol protocol = pick_protocol(options, first_look, *side);
  const DefaultRun default_run = side->default_run();
  const Limits limits = {.call_seconds = options.full ? 0.0 : 1.0,
                         .setup_seconds = first_look ? default_run.setup_seconds : 0.0,
                         .run_seconds = first_look ? default_run.run_seconds : 0.0};
  Runner runner(*side, protocol, limits);
  std::vector<Group> groups = make_groups(options, first_look, *side, runner);
  if (groups.empty())
    throw UsageError("no row matches --benchmark_filter=" + benchmark::GetBenchmarkFilter());
  if (options.list) {
    list(groups);
    return 0;
  }

  std::ofstream json;
  if (!options.json.empty()) {
    json.open(options.json);
    if (!json) throw UsageError("--json: cannot write '" + options.json + "'");
  }
  facts.emplace_back("side", side->name());
  for (auto& fact : side->facts()) facts.push_back(std::move(fact));
  facts.emplace_back("protocol", to_string(protocol));
  for (const auto& [name, value] : facts) benchmark::AddCustomContext(name, value);

  Progress progress(runner, groups);
  register_rows(groups, runner, progress);
  if (other_format) {
    print_facts(std::cerr, facts);
    benchmark::RunSpecifiedBenchmarks();
  } else {
    Table table(facts, groups);
    benchmark::RunSpecifiedBenchmarks(&table);
  }
  benchmark::Shutdown();
  if (json.is_open()) write_json(json, facts, protocol, groups);

  if (!measures_the_library(groups)) std::fprintf(stderr, "no row of the library was measured\n");
  std::fprintf(stderr, "%s in all%s\n", duration(runner.elapsed()).c_str(),
               runner.failed() ? "; there are FAILED rows" : "");
  return runner.failed() ? 1 : 0;
}

}  // namespace

}  // namespace fa::bench

int main(int argc, char** argv) {
  return fa::bench::run_program("bench_attention", fa::bench::run, argc, argv);
}
