/// The place where a run measures: the host here, a CUDA device beside it. A side knows which candidates a
/// problem has there, how to run them, by which clock, and what the hardware can do at most.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "bench/protocol.hpp"
#include "tests/support/problem.hpp"

namespace fa::bench {

/// What the command line picks. Empty lists: the side's own choice.
struct Selection {
  std::vector<Version> versions;
  std::vector<int> threads;
  std::vector<Clock> clocks;       // of a device
  std::vector<Version> ablations;  // rungs to measure with their variants and nothing else
  bool candidates = false;         // ... with their candidates of tile sizes instead
};

/// One candidate of a problem, before any memory exists for it.
struct RowPlan {
  enum class Role {
    kernel,    // a rung of the library
    baseline,  // something else that computes the same
    self,      // the kernel it is compared with, once more: the noise floor
    ablation,  // a variant of a rung, or a candidate (bench/ablations.hpp)
  };
  std::string key;  // "CPU/t2", "V2/graph": names the row within its problem
  Role role = Role::kernel;
  Version version = Version::Auto;
  std::string baseline;  // its name; empty for a kernel
  int threads = 0;       // 0 on a device
  Clock clock = Clock::wall;
  std::vector<std::string> compared_with;  // keys of the rows that its ratios refer to
  int ablation = -1;                       // index of the variant
};

/// What would run.
struct Choice {
  bool runs = false;
  std::string kernel;  // the library's own name for it, a stand-in's where one stands in
  int threads = 0;
  std::string why_not;
};

/// A problem in memory.
class Fixture {
 public:
  virtual ~Fixture() = default;
  virtual Choice explain(const RowPlan& row) = 0;
  /// Spoils the row's outputs, makes one call, waits for it.
  virtual void run_once(const RowPlan& row) = 0;
  /// What is wrong with what run_once left; empty: nothing.
  virtual std::string check(const RowPlan& row) = 0;
  /// For the protocol. Stays valid as long as the fixture.
  virtual Candidate candidate(const RowPlan& row) = 0;
  /// The problem moves more than it computes: its calls rotate over copies() copies of the inputs, so that
  /// caches do not keep them, and the memory ceiling binds it; else the compute ceiling does.
  virtual bool memory_bound() const = 0;
  virtual int copies() const = 0;  // at least 1
};

/// A limit of the hardware, measured like any other row.
struct Ceiling {
  Candidate candidate;
  double flops = 0;  // of one call
  double bytes = 0;  // of one call
  std::string note;
};

/// Host time of a call beside that of as many bare launches.
struct HostCost {
  Candidate call, bare;
  std::string note;  // "1 launch, 200 parameter bytes"
  Version version = Version::Auto;
  Dtype dtype = Dtype::none;
};

/// A run without --problem and --problems.
struct DefaultRun {
  std::vector<std::string> sets;      // problem files; the first is swept on both thread counts
  std::vector<std::string> full;      // under --full
  Protocol protocol;                  // without --full
  double run_seconds, setup_seconds;  // as in Limits, without --full
  bool light_first;                   // problems of little work come first
};

class Side {
 public:
  virtual ~Side() = default;
  virtual std::string name() const = 0;  // "host", "device"
  /// Facts for the head of the run.
  virtual std::vector<std::pair<std::string, std::string>> facts() = 0;
  /// The ceilings that the run shows as rows of their own; `all`: those too that take long.
  virtual std::vector<Ceiling> ceilings(const Selection& selection, bool all) = 0;
  /// The one under which a row of `dtype` computes, and the one under which it moves memory.
  virtual Ceiling compute_ceiling(Dtype dtype, int threads) = 0;
  virtual Ceiling memory_ceiling(int threads) = 0;
  /// By key, "V2/float32". Empty where a call is nothing but work of the host.
  virtual std::vector<std::string> host_costs(const Selection& selection) const = 0;
  virtual HostCost host_cost(const std::string& key) = 0;
  /// The candidates of a problem. `both_thread_counts`: on one thread as well as on all.
  virtual std::vector<RowPlan> plan(const test::Problem& problem, const Selection& selection,
                                    bool both_thread_counts) = 0;
  virtual std::unique_ptr<Fixture> fixture(const test::Problem& problem) = 0;
  /// Seconds that making the problem's data takes, roughly.
  virtual double setup_seconds(const test::Problem& problem) const = 0;
  /// A small problem of the same kind, for a first idea of a row's speed; none: it is never too slow.
  virtual std::optional<test::Problem> pilot(const test::Problem& problem, const RowPlan& row) const = 0;
  virtual DefaultRun default_run() const = 0;
};

std::unique_ptr<Side> host_side();

/// Null where this build measures no device or the machine has none; *why_not says which.
std::unique_ptr<Side> device_side(std::string* why_not);

}  // namespace fa::bench
