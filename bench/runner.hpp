/// Measures problems on a side: decides which rows fit, checks that they are right, times them together.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/side.hpp"

namespace fa::bench {

struct RowResult {
  enum class State { pending, measured, skipped, failed };
  State state = State::pending;
  std::string reason;  // skipped, failed: why
  std::string kernel;  // what ran
  int threads = 0;
  Series series;
  double seconds = 0;  // median of the series
  double flops = 0, bytes = 0;
  std::string ceiling;      // name of the ceiling that binds the row
  double ceiling_rate = 0;  // its operations or bytes a second in the same rounds
  double of_ceiling = 0;    // median of paired ratios
  struct Ratio {
    std::string to;  // key of the row compared with
    double value;    // its seconds / this one's, paired median
  };
  std::vector<Ratio> ratios;
  struct Bare {
    Series series;
    double seconds = 0;  // median
    double over = 0;     // median of the paired differences, call - bare
  };
  std::optional<Bare> bare;  // of a host-cost row
};

struct Row {
  std::string name;  // "gpt2_small/prefill_S512/CPU/t2"
  RowPlan plan;
  Dtype dtype = Dtype::none;
  RowResult result;
};

/// A problem and everything measured on it, interleaved.
struct Group {
  enum class Kind { problem, ceilings, host_costs };
  std::string name;  // "gpt2_small/prefill_S512"
  Kind kind = Kind::problem;
  test::Problem problem;
  std::vector<Row> rows;
  bool done = false;
  int copies = 1;
  std::optional<double> noise;  // median distance from 1 of self / self; of several the largest
};

struct Limits {
  // Rows beyond a limit are skipped by name. 0: no such limit.
  double call_seconds = 1;   // of one call
  double setup_seconds = 0;  // of making the problem's data
  double run_seconds = 0;    // of the whole run
};

class Runner {
 public:
  Runner(Side& side, const Protocol& protocol, const Limits& limits);

  /// The side's ceilings as a group of their own; `all`: those too that take long.
  Group ceilings(const Selection& selection, bool all);

  /// The host's cost of a call as a group of its own. It may be empty.
  Group host_costs(const Selection& selection);

  /// Measures a group; a second call does nothing. Rows end up measured, skipped or failed.
  void run(Group& group);

  /// Seconds that run(group) is expected to take, by what the run has seen so far.
  double expected(const Group& group) const;

  double elapsed() const;
  const Limits& limits() const { return limits_; }
  bool failed() const { return failed_; }

 private:
  struct Rate {
    double flops;  // of the problem that gave it
    double flops_per_second;
  };

  void run_ceilings(Group& group);
  void run_host_costs(Group& group);
  void run_problem(Group& group);
  void skip_by_estimate(Group& group);
  void check(Group& group, Fixture& fixture);
  void time(Group& group, Fixture& fixture);
  void pilot(const Group& group, const RowPlan& plan);
  void note_rate(const RowPlan& plan, Dtype dtype, double flops, double seconds);
  std::optional<double> rate(const RowPlan& plan, Dtype dtype) const;
  std::optional<double> estimate(const Group& group, const RowPlan& plan) const;
  double planned(const Group& group) const;
  double slowness() const;
  void skip(Row& row, const std::string& reason);
  void fail(Row& row, const std::string& reason);

  Side& side_;
  Protocol protocol_;
  Limits limits_;
  std::chrono::steady_clock::time_point start_;
  std::map<std::string, Rate> rates_;            // by row key and dtype
  std::map<std::string, Ceiling> ceiling_rows_;  // by row name, those of ceilings()
  double planned_ = 0, taken_ = 0;               // seconds of the groups that have run
  bool failed_ = false;
};

}  // namespace fa::bench
