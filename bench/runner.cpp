#include "bench/runner.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <new>

#include "bench/statistics.hpp"
#include "bench/work.hpp"

namespace fa::bench {

namespace {

using State = RowResult::State;
using test::Problem;

constexpr std::uint64_t kOrderSeed = 20230717;

double work_of(const Ceiling& ceiling) {
  return ceiling.flops > 0 ? ceiling.flops : ceiling.bytes;
}

double seconds_of(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

std::string rate_key(const RowPlan& plan, Dtype dtype) {
  // A self row runs what it is compared with.
  const std::string& key = plan.role == RowPlan::Role::self ? plan.compared_with.front() : plan.key;
  return key + " " + name_of(dtype);
}

Row* find(Group& group, const std::string& key) {
  const auto found =
      std::find_if(group.rows.begin(), group.rows.end(), [&](const Row& row) { return row.plan.key == key; });
  return found == group.rows.end() ? nullptr : &*found;
}

}  // namespace

Runner::Runner(Side& side, const Protocol& protocol, const Limits& limits)
    : side_(side), protocol_(protocol), limits_(limits), start_(std::chrono::steady_clock::now()) {}

double Runner::elapsed() const {
  return seconds_of(start_);
}

void Runner::skip(Row& row, const std::string& reason) {
  row.result.state = State::skipped;
  row.result.reason = reason;
}

void Runner::fail(Row& row, const std::string& reason) {
  row.result.state = State::failed;
  row.result.reason = reason;
  failed_ = true;
}

Group Runner::ceilings(const Selection& selection, bool all) {
  Group group;
  group.name = "ceilings";
  group.kind = Group::Kind::ceilings;
  for (Ceiling& ceiling : side_.ceilings(selection, all)) {
    Row row;
    row.plan.key = ceiling.candidate.name;
    row.plan.clock = ceiling.candidate.clock;
    row.name = group.name + "/" + row.plan.key;
    row.result.kernel = ceiling.note;
    row.result.flops = ceiling.flops;
    row.result.bytes = ceiling.bytes;
    ceiling_rows_.emplace(row.name, std::move(ceiling));
    group.rows.push_back(std::move(row));
  }
  return group;
}

Group Runner::host_costs(const Selection& selection) {
  Group group;
  group.name = "host_cost";
  group.kind = Group::Kind::host_costs;
  for (const std::string& key : side_.host_costs(selection)) {
    Row row;
    row.plan.key = key;
    row.name = group.name + "/" + key;
    group.rows.push_back(std::move(row));
  }
  return group;
}

void Runner::run(Group& group) {
  if (group.done) return;
  const auto start = std::chrono::steady_clock::now();
  switch (group.kind) {
    case Group::Kind::ceilings:
      planned_ += planned(group);
      run_ceilings(group);
      break;
    case Group::Kind::host_costs:
      planned_ += planned(group);
      run_host_costs(group);
      break;
    case Group::Kind::problem:
      run_problem(group);
      break;
  }
  group.done = true;
  taken_ += seconds_of(start);
}

void Runner::run_problem(Group& group) {
  try {
    skip_by_estimate(group);
    planned_ += planned(group);
    const auto pending = [](const Row& row) { return row.result.state == State::pending; };
    if (std::none_of(group.rows.begin(), group.rows.end(), pending)) return;
    const std::unique_ptr<Fixture> fixture = side_.fixture(group.problem);
    group.copies = fixture->copies();
    check(group, *fixture);
    time(group, *fixture);
  } catch (const std::bad_alloc&) {
    for (Row& row : group.rows) skip(row, "the problem does not fit into memory");
  } catch (const std::exception& error) {
    for (Row& row : group.rows) fail(row, error.what());
  }
}

void Runner::run_ceilings(Group& group) {
  std::vector<Candidate> candidates;
  for (const Row& row : group.rows) candidates.push_back(ceiling_rows_.at(row.name).candidate);
  const std::vector<Series> series = measure(candidates, protocol_, kOrderSeed);
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    RowResult& result = group.rows[i].result;
    result.series = series[i];
    result.seconds = median(series[i].seconds_per_call);
    result.state = State::measured;
  }
}

void Runner::run_host_costs(Group& group) {
  for (Row& row : group.rows) {
    try {
      const HostCost cost = side_.host_cost(row.plan.key);
      const std::vector<Series> series = measure({cost.call, cost.bare}, host_cost_protocol(), kOrderSeed);
      RowResult& result = row.result;
      row.plan.version = cost.version;
      row.dtype = cost.dtype;
      result.kernel = cost.note;
      result.series = series[0];
      result.seconds = median(series[0].seconds_per_call);
      const std::vector<double> over =
          paired_differences(series[0].seconds_per_call, series[1].seconds_per_call);
      result.bare = {series[1], median(series[1].seconds_per_call), median(over)};
      result.state = State::measured;
    } catch (const Unsupported& error) {
      skip(row, error.what());
    } catch (const std::exception& error) {
      fail(row, error.what());
    }
  }
}

// ---- which rows fit ----------------------------------------------------------------------------------

void Runner::note_rate(const RowPlan& plan, Dtype dtype, double flops, double seconds) {
  if (flops <= 0 || seconds <= 0) return;
  const auto [place, added] = rates_.try_emplace(rate_key(plan, dtype), Rate{flops, flops / seconds});
  // The largest problem tells most about larger ones.
  if (!added && flops >= place->second.flops) place->second = {flops, flops / seconds};
}

std::optional<double> Runner::rate(const RowPlan& plan, Dtype dtype) const {
  auto found = rates_.find(rate_key(plan, dtype));
  // Another dtype's rate is a better guess than a pilot's.
  for (const Dtype other : {Dtype::float32, Dtype::float16, Dtype::bfloat16}) {
    if (found == rates_.end()) found = rates_.find(rate_key(plan, other));
  }
  if (found == rates_.end()) return std::nullopt;
  return found->second.flops_per_second;
}

std::optional<double> Runner::estimate(const Group& group, const RowPlan& plan) const {
  const std::optional<double> known = rate(plan, group.problem.dtype);
  if (!known) return std::nullopt;
  return group.problem.flops() / *known;
}

void Runner::pilot(const Group& group, const RowPlan& plan) try {
  const std::optional<Problem> small = side_.pilot(group.problem, plan);
  if (!small) return;
  const std::unique_ptr<Fixture> fixture = side_.fixture(*small);
  if (!fixture->explain(plan).runs) return;
  double best = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    fixture->run_once(plan);
    best = std::min(best, seconds_of(start));
  }
  // Noted as if of the least problem: the first row measured replaces it.
  note_rate(plan, small->dtype, 1, best / std::max(1.0, small->flops()));
} catch (const std::exception&) {
  // No idea of its speed, then. What is wrong the row itself will say.
}

void Runner::skip_by_estimate(Group& group) {
  const double setup = side_.setup_seconds(group.problem);
  double end = elapsed() + setup * slowness();
  for (Row& row : group.rows) {
    if (!rate(row.plan, group.problem.dtype)) pilot(group, row.plan);
    const std::optional<double> seconds = estimate(group, row.plan);
    if (!seconds) continue;
    const double takes = (*seconds + expected_seconds(protocol_, row.plan.clock, *seconds)) * slowness();
    if (limits_.call_seconds > 0 && *seconds > limits_.call_seconds) {
      skip(row, "one call takes about " + seconds_text(*seconds) + " here; --full runs it");
    } else if (limits_.setup_seconds > 0 && setup > limits_.setup_seconds) {
      skip(row, "making its data takes about " + seconds_text(setup) + "; --full runs it");
    } else if (limits_.run_seconds > 0 && end + takes > limits_.run_seconds) {
      skip(row, "a default run ends after " + seconds_text(limits_.run_seconds) + "; --full runs it");
    } else {
      end += takes;
    }
  }
}

/// What the group's pending rows should take on an idle machine.
double Runner::planned(const Group& group) const {
  constexpr double kHostCostSeconds = 0.5;  // of a row
  if (group.kind == Group::Kind::host_costs) return kHostCostSeconds * static_cast<double>(group.rows.size());
  double total = 0;
  for (const Row& row : group.rows) {
    if (row.result.state != State::pending) continue;
    const double seconds = estimate(group, row.plan).value_or(0);
    if (limits_.call_seconds > 0 && seconds > limits_.call_seconds) continue;
    total += seconds + expected_seconds(protocol_, row.plan.clock, seconds);
  }
  const double setup = side_.setup_seconds(group.problem);
  if (total == 0 || (limits_.setup_seconds > 0 && setup > limits_.setup_seconds)) return 0;
  // Each group samples a ceiling besides its rows.
  return total + setup + expected_seconds(protocol_, group.rows.front().plan.clock, 0);
}

/// How much longer than planned the groups so far have taken.
double Runner::slowness() const {
  return planned_ > 1 ? std::max(1.0, taken_ / planned_) : 1.0;
}

double Runner::expected(const Group& group) const {
  return group.done ? 0 : planned(group) * slowness();
}

// ---- right first, then fast --------------------------------------------------------------------------

void Runner::check(Group& group, Fixture& fixture) {
  for (Row& row : group.rows) {
    if (row.result.state != State::pending) continue;
    try {
      const Choice choice = fixture.explain(row.plan);
      row.result.kernel = choice.kernel;
      row.result.threads = choice.threads;
      if (!choice.runs) {
        skip(row, choice.why_not);
        continue;
      }
      if (row.plan.role == RowPlan::Role::self) {
        const Row* original = find(group, row.plan.compared_with.front());
        if (original == nullptr || original->result.state != State::pending)
          skip(row, "its original was not run");
        continue;
      }
      const auto start = std::chrono::steady_clock::now();
      fixture.run_once(row.plan);
      const double seconds = seconds_of(start);
      const std::string wrong = fixture.check(row.plan);
      if (!wrong.empty()) {
        fail(row, wrong);
      } else if (limits_.call_seconds > 0 && seconds > 1.5 * limits_.call_seconds) {
        note_rate(row.plan, group.problem.dtype, group.problem.flops(), seconds);
        skip(row, "one call took " + seconds_text(seconds) + "; --full runs it");
      } else if (row.plan.clock == Clock::graph) {
        fixture.candidate(row.plan).time(1);  // what cannot be captured fails here, alone
      }
    } catch (const std::bad_alloc&) {
      skip(row, "it does not fit into memory");
    } catch (const OutOfMemory& error) {
      skip(row, error.what());
    } catch (const std::exception& error) {
      fail(row, error.what());
    }
  }
}

void Runner::time(Group& group, Fixture& fixture) {
  std::vector<Row*> rows;
  std::vector<Candidate> candidates;
  std::vector<Ceiling> ceilings;        // those that bind some row, sampled among the candidates
  std::vector<std::size_t> ceiling_of;  // per row, index into ceilings
  for (Row& row : group.rows) {
    if (row.result.state != State::pending) continue;
    rows.push_back(&row);
    candidates.push_back(fixture.candidate(row.plan));
    Ceiling ceiling = fixture.memory_bound() ? side_.memory_ceiling(row.plan.threads)
                                             : side_.compute_ceiling(group.problem.dtype, row.plan.threads);
    const auto same = std::find_if(ceilings.begin(), ceilings.end(), [&](const Ceiling& c) {
      return c.candidate.name == ceiling.candidate.name;
    });
    ceiling_of.push_back(static_cast<std::size_t>(same - ceilings.begin()));
    if (same == ceilings.end()) ceilings.push_back(std::move(ceiling));
  }
  if (rows.empty()) return;
  for (const Ceiling& ceiling : ceilings) candidates.push_back(ceiling.candidate);

  const std::vector<Series> series = measure(candidates, protocol_, kOrderSeed);

  const double flops = group.problem.flops(), bytes = least_bytes(group.problem);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    RowResult& result = rows[i]->result;
    const Ceiling& ceiling = ceilings[ceiling_of[i]];
    const Series& limit = series[rows.size() + ceiling_of[i]];
    result.series = series[i];
    result.seconds = median(series[i].seconds_per_call);
    result.flops = flops;
    result.bytes = bytes;
    result.ceiling = ceiling.candidate.name;
    result.ceiling_rate = work_of(ceiling) / median(limit.seconds_per_call);
    result.of_ceiling = median(paired_ratios(limit.seconds_per_call, series[i].seconds_per_call)) *
                        (ceiling.flops > 0 ? flops : bytes) / work_of(ceiling);
    result.state = State::measured;
    note_rate(rows[i]->plan, group.problem.dtype, flops, result.seconds);
  }
  for (Row* row : rows) {
    for (const std::string& key : row->plan.compared_with) {
      const Row* other = find(group, key);
      if (other == nullptr || other->result.state != State::measured) continue;
      const std::vector<double> ratios =
          paired_ratios(other->result.series.seconds_per_call, row->result.series.seconds_per_call);
      row->result.ratios.push_back({key, median(ratios)});
      if (row->plan.role == RowPlan::Role::self)
        group.noise = std::max(group.noise.value_or(0), distance_from_one(ratios));
    }
  }
}

}  // namespace fa::bench
