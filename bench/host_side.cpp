#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>

#include "bench/baselines/three_pass.hpp"
#include "bench/host_backward.hpp"
#include "bench/host_ceilings.hpp"
#include "bench/host_problem.hpp"
#include "bench/one_line.hpp"
#include "bench/row_check.hpp"
#include "bench/side.hpp"
#include "bench/thread_team.hpp"
#include "bench/work.hpp"

namespace fa::bench {

namespace {

using test::Problem;

// Below this many operations a byte, a problem is taken for memory-bound and its inputs rotate, unless so
// many copies of them would still lie in a cache. A core makes some tens of operations in the time of a byte
// from memory.
constexpr double kMemoryBoundIntensity = 16;
constexpr int kMostCopies = 64;

bool is_memory_bound(const Problem& problem) {
  const double bytes = least_bytes(problem);
  return problem.flops() < kMemoryBoundIntensity * bytes &&
         bytes * kMostCopies >= static_cast<double>(streaming_bytes());
}

constexpr double kMostScoreBytes = 4e9;

// Of run_fma: a few milliseconds a call.
constexpr long long kFmaIterations = 1'000'000;

std::string with_threads(const std::string& name, int threads) {
  return name + "/t" + std::to_string(threads);
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", bytes * 1e-9);
  return text;
}

class HostFixture : public Fixture {
 public:
  explicit HostFixture(const Problem& problem) : problem_(problem), inputs_(test::make_inputs(problem)) {
    for (int n = copies_for(problem); n > 0; --n) {
      copies_.push_back(std::make_unique<HostProblem>(problem, inputs_));
    }
  }

  Choice explain(const RowPlan& row) override {
    if (row.role == RowPlan::Role::baseline) {
      const double bytes = ThreePass::score_bytes(problem_, row.threads);
      if (bytes > kMostScoreBytes) return {false, "", 0, "its score matrices would take " + gigabytes(bytes)};
      return {true, "three_pass", threads_of(row), ""};
    }
    fa_forward_plan plan = {};
    plan.size = sizeof plan;
    char text[1024] = "";
    const fa_status status =
        fa_forward_explain(&args(row, 0), version(row), &plan, text, sizeof text, nullptr);
    if (status == FA_UNSUPPORTED) return {false, "", 0, fa_last_error()};
    detail::check(status);
    if (plan.runs == 0) return {false, "", 0, one_line(text)};
    return {true, plan.kernel, plan.threads, ""};
  }

  void run_once(const RowPlan& row) override {
    if (row.role == RowPlan::Role::baseline) {
      baseline(row).run(inputs_);
      return;
    }
    copies_[0]->spoil_outputs();
    detail::check(fa_forward(&args(row, 0), version(row), nullptr));
  }

  std::string check(const RowPlan& row) override {
    const auto read = [&](std::int64_t b, std::int64_t h, std::int64_t i) { return read_row(row, b, h, i); };
    return check_rows(problem_, input_reader(problem_, inputs_), read, Rule::house);
  }

  Candidate candidate(const RowPlan& row) override {
    if (row.role == RowPlan::Role::baseline) {
      // Its tensors are fp32 and contiguous whatever the problem's are.
      more_inputs_.resize(copies_.size() - 1, inputs_);
      return {row.key, Clock::wall,
              wall_clock([this, &three_pass = baseline(row), next = std::size_t{0}]() mutable {
                const std::size_t copy = next++ % copies_.size();
                three_pass.run(copy == 0 ? inputs_ : more_inputs_[copy - 1]);
              })};
    }
    return {row.key, Clock::wall, wall_clock([this, row, next = std::size_t{0}]() mutable {
              detail::check(fa_forward(&args(row, next++ % copies_.size()), version(row), nullptr));
            })};
  }

  bool memory_bound() const override { return is_memory_bound(problem_); }
  int copies() const override { return static_cast<int>(copies_.size()); }

 private:
  OutputRow read_row(const RowPlan& row, std::int64_t b, std::int64_t h, std::int64_t i) {
    if (row.role != RowPlan::Role::baseline) return copies_[0]->row(b, h, i);
    const test::Outputs<float>& outputs = baseline(row).outputs();
    const std::int64_t index = (b * problem_.H + h) * problem_.M + i;
    const auto first = outputs.out.begin() + index * problem_.Dv;
    return {{first, first + problem_.Dv}, outputs.lse[static_cast<std::size_t>(index)]};
  }

  static int copies_for(const Problem& problem) {
    if (!is_memory_bound(problem)) return 1;
    const double wanted = static_cast<double>(streaming_bytes()) / std::max(1.0, least_bytes(problem));
    return static_cast<int>(std::clamp(wanted + 1, 1.0, static_cast<double>(kMostCopies)));
  }

  fa_forward_args& args(const RowPlan& row, std::size_t copy) {
    fa_forward_args& result = copies_[copy]->args();
    result.threads = row.threads;
    return result;
  }

  static fa_version version(const RowPlan& row) { return static_cast<fa_version>(row.version); }

  int threads_of(const RowPlan& row) const {
    return static_cast<int>(std::clamp<std::int64_t>(problem_.B * problem_.H, 1, row.threads));
  }

  ThreePass& baseline(const RowPlan& row) {
    std::unique_ptr<ThreePass>& slot = baselines_[row.threads];
    if (!slot) slot = std::make_unique<ThreePass>(problem_, row.threads);
    return *slot;
  }

  Problem problem_;
  test::Inputs inputs_;
  std::vector<test::Inputs> more_inputs_;  // copies of inputs_, for the baseline
  std::vector<std::unique_ptr<HostProblem>> copies_;
  std::map<int, std::unique_ptr<ThreePass>> baselines_;  // by threads
};

class HostSide : public Side {
 public:
  std::string name() const override { return "host"; }

  std::vector<std::pair<std::string, std::string>> facts() override {
    char clock[64];
    std::snprintf(clock, sizeof clock, "%.2f GHz (dependent one-cycle instructions)", core_clock() * 1e-9);
    return {{"threads", std::to_string(default_threads())},
            {"core clock", clock},
            {"memory rows", "rotate over " + std::to_string(streaming_bytes() >> 20) + " MiB"}};
  }

  std::vector<Ceiling> ceilings(const Selection& selection, bool) override {
    std::vector<Ceiling> result;
    const std::vector<int> threads = thread_counts(selection, true);
    for (const int t : threads) result.push_back(compute_ceiling(Dtype::float32, t));
    for (const int t : threads) result.push_back(memory_ceiling(t));
    for (const int t : threads) result.push_back(copy_ceiling(t));
    return result;
  }

  // Every dtype is computed in fp32 on the host.
  Ceiling compute_ceiling(Dtype, int threads) override {
    const auto time = [threads](std::int64_t calls) {
      return wall_clock([threads, calls] {
        run_on_threads(threads, [calls](int) { run_fma(calls * kFmaIterations); });
      })(1);
    };
    return {{with_threads("fma", threads), Clock::wall, time},
            fma_flops_per_iteration() * static_cast<double>(kFmaIterations) * threads,
            0,
            std::string("fp32 FMAs, ") + fma_vectors()};
  }

  Ceiling memory_ceiling(int threads) override {
    StreamBuffers& buffers = stream_buffers();
    return {{with_threads("read", threads), Clock::wall,
             wall_clock([&buffers, threads] { buffers.read(threads); })},
            0,
            buffers.bytes(),
            "streaming read"};
  }

  std::vector<RowPlan> plan(const Problem& problem, const Selection& selection,
                            bool both_thread_counts) override {
    std::vector<int> threads = thread_counts(selection, both_thread_counts);
    if (problem.threads > 0) threads = {problem.threads};
    const std::vector<Version> versions =
        selection.versions.empty() ? std::vector<Version>{Version::CPU} : selection.versions;

    if (problem.passes != test::Passes::forward) return plan_backward(versions, threads);
    std::vector<RowPlan> rows;
    for (const int t : threads) {
      const std::string baseline = with_threads("three_pass", t);
      for (const Version version : versions) {
        rows.push_back({with_threads(name_of(version), t),
                        RowPlan::Role::kernel,
                        version,
                        "",
                        t,
                        Clock::wall,
                        {baseline}});
      }
      rows.push_back({baseline, RowPlan::Role::baseline, Auto, "three_pass", t, Clock::wall, {}});
    }
    RowPlan self = rows[rows.size() - 1 - versions.size()];
    self.role = RowPlan::Role::self;
    self.compared_with = {self.key};
    self.key = "self/" + self.key;
    rows.push_back(self);
    return rows;
  }

  std::unique_ptr<Fixture> fixture(const Problem& problem) override {
    if (problem.passes != test::Passes::forward) return host_backward_fixture(problem);
    return std::make_unique<HostFixture>(problem);
  }

  std::vector<std::string> host_costs(const Selection&) const override { return {}; }
  HostCost host_cost(const std::string&) override {
    throw std::logic_error("calls on the host launch nothing");
  }

  /// Random numbers dominate.
  double setup_seconds(const Problem& p) const override {
    const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
      return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c) *
             static_cast<double>(d);
    };
    constexpr double kSecondsPerElement = 30e-9;
    return kSecondsPerElement * (product(p.B, p.H, p.M, p.D) + product(p.B, p.Hk, p.N, p.D + p.Dv));
  }

  std::optional<Problem> pilot(const Problem& problem, const RowPlan& row) const override {
    Problem small = problem;
    small.B = 1;
    small.H = small.Hk = std::min<std::int64_t>(problem.H, std::max(1, row.threads));
    small.M = std::min<std::int64_t>(problem.M, 128);
    small.N = std::min<std::int64_t>(problem.N, 256);
    small.mask = Mask::full();
    small.layout = test::Layout::bhsd;
    return small;
  }

  /// A first look: it ends within three minutes, less a margin, whatever the machine.
  DefaultRun default_run() const override {
    const std::vector<std::string> sets = {"host_sweep", "gpt2_small", "llama3_8b",
                                           "mistral_7b", "gemma2_9b",  "qwen2_5_7b"};
    return {.sets = sets,
            .full = sets,
            .protocol = short_protocol(),
            .run_seconds = 150,
            .setup_seconds = 4,
            .light_first = true};
  }

 private:
  // three_pass has no backward.
  static std::vector<RowPlan> plan_backward(const std::vector<Version>& versions,
                                            const std::vector<int>& threads) {
    std::vector<RowPlan> rows;
    for (const int t : threads) {
      for (const Version version : versions) {
        rows.push_back(
            {with_threads(name_of(version), t), RowPlan::Role::kernel, version, "", t, Clock::wall, {}});
      }
    }
    RowPlan self = rows.back();
    self.role = RowPlan::Role::self;
    self.compared_with = {self.key};
    self.key = "self/" + self.key;
    rows.push_back(self);
    return rows;
  }

  static std::vector<int> thread_counts(const Selection& selection, bool both) {
    if (!selection.threads.empty()) return selection.threads;
    const int all = default_threads();
    if (both && all > 1) return {1, all};
    return {all};
  }

  Ceiling copy_ceiling(int threads) {
    StreamBuffers& buffers = stream_buffers();
    return {{with_threads("copy", threads), Clock::wall,
             wall_clock([&buffers, threads] { buffers.copy(threads); })},
            0,
            buffers.bytes(),
            "memcpy, read and written"};
  }

  StreamBuffers& stream_buffers() {
    if (!buffers_) buffers_ = std::make_unique<StreamBuffers>();
    return *buffers_;
  }

  std::unique_ptr<StreamBuffers> buffers_;
};

}  // namespace

std::unique_ptr<Side> host_side() {
  return std::make_unique<HostSide>();
}

}  // namespace fa::bench
