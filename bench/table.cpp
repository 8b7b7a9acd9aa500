#include "bench/table.hpp"

#include <algorithm>
#include <cstdio>
#include <ostream>

namespace fa::bench {

namespace {

using State = RowResult::State;

std::string formatted(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return formatted("%.1f us", seconds * 1e6);
  if (seconds < 1) return formatted("%.2f ms", seconds * 1e3);
  return formatted("%.2f s ", seconds);
}

std::string flop_rate(double rate) {
  if (rate <= 0) return "";
  return rate < 1e12 ? formatted("%.1f GFLOP/s", rate * 1e-9) : formatted("%.1f TFLOP/s", rate * 1e-12);
}

std::string byte_rate(double rate) {
  return rate <= 0 ? "" : formatted("%.2f GB/s", rate * 1e-9);
}

/// "cudnn" of "cudnn/graph": both rows of a ratio have one clock.
std::string short_name(const std::string& key) {
  for (const Clock clock : {Clock::graph, Clock::events}) {
    const std::string suffix = std::string("/") + name_of(clock);
    if (key.ends_with(suffix)) return key.substr(0, key.size() - suffix.size());
  }
  return key;
}

std::string host_cost(const RowResult& r) {
  return "host cost: fa_forward " + formatted("%.2f us", r.seconds * 1e6) +
         formatted(", bare %.2f us", r.bare->seconds * 1e6) +
         formatted(", over %.2f us", r.bare->over * 1e6) + "; " + r.kernel;
}

std::string measured(const Group& group, const Row& row) {
  const RowResult& r = row.result;
  std::string against, notes = r.kernel;
  for (const RowResult::Ratio& ratio : r.ratios)
    against += (against.empty() ? "" : ", ") + formatted("%.3g", ratio.value) + "x " + short_name(ratio.to);
  if (r.threads > 0) notes += ", " + std::to_string(r.threads) + (r.threads == 1 ? " thread" : " threads");
  if (row.plan.clock != Clock::wall) notes += std::string(", ") + name_of(row.plan.clock);
  if (row.plan.role == RowPlan::Role::self && group.noise) {
    notes = "noise " + formatted("%.1f%%", 100 * *group.noise);
  }
  std::string ceiling = r.ceiling.empty() ? "" : formatted("%.0f%% of ", 100 * r.of_ceiling) + r.ceiling;
  char line[512];
  std::snprintf(line, sizeof line, "%13s %14s %12s  %-16s %-34s %s", duration(r.seconds).c_str(),
                flop_rate(r.flops / r.seconds).c_str(), byte_rate(r.bytes / r.seconds).c_str(),
                ceiling.c_str(), against.c_str(), notes.c_str());
  return line;
}

}  // namespace

void print_facts(std::ostream& out, const Facts& facts) {
  std::size_t width = 0;
  for (const auto& [name, value] : facts) width = std::max(width, name.size());
  for (const auto& [name, value] : facts) {
    out << name << std::string(width + 2 - name.size(), ' ') << value << '\n';
  }
  out << std::flush;
}

Table::Table(const Facts& facts, const std::vector<Group>& groups) : facts_(facts) {
  for (const Group& group : groups) {
    for (const Row& row : group.rows) rows_[row.name] = {&group, &row};
  }
}

bool Table::ReportContext(const Context&) {
  print_facts(GetOutputStream(), facts_);
  char line[200];
  std::snprintf(line, sizeof line, "\n  %-22s %13s %14s %12s  %-16s %-34s %s\n", "row", "time per call",
                "computes", "moves", "of ceiling", "speed against", "what ran");
  GetOutputStream() << line;
  return true;
}

void Table::ReportRuns(const std::vector<Run>& runs) {
  std::ostream& out = GetOutputStream();
  for (const Run& run : runs) {
    const auto found = rows_.find(run.run_name.function_name);
    if (run.run_type == Run::RT_Aggregate || found == rows_.end()) continue;
    const auto [group, row] = found->second;
    if (printed_ != group) {
      printed_ = group;
      out << '\n' << group->name;
      if (group->kind == Group::Kind::problem) out << ": " << test::to_string(group->problem);
      if (group->copies > 1) out << " (over " << group->copies << " copies of the inputs)";
      out << '\n';
    }
    char key[64];
    std::snprintf(key, sizeof key, "  %-22s ", row->plan.key.c_str());
    out << key;
    switch (row->result.state) {
      case State::measured:
        out << (row->result.bare ? host_cost(row->result) : measured(*group, *row));
        break;
      case State::skipped:
        out << "skipped: " << row->result.reason;
        break;
      case State::failed:
        out << "FAILED: " << row->result.reason;
        break;
      case State::pending:
        out << "not run";
        break;
    }
    out << std::endl;
  }
}

}  // namespace fa::bench
