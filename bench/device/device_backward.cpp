#include "bench/device/device_backward.hpp"

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/baselines/cudnn_sdpa.hpp"
#include "bench/baselines/explicit_attention.hpp"
#include "bench/device/backward_problem.hpp"
#include "bench/device/baselines.hpp"
#include "bench/device/clocks.hpp"
#include "bench/one_line.hpp"
#include "tests/support/compare.hpp"

namespace fa::bench {

namespace {

using test::Passes;
using test::Problem;

// Up to here every element is compared with the oracle's.
constexpr double kWholeCheckFlops = 4e9;

class DeviceBackward : public Fixture {
 public:
  DeviceBackward(const Problem& problem, const DeviceStream& stream)
      : memory_(problem, stream), problem_(memory_.problem()), stream_(stream) {
    detail::check(fa_forward(&memory_.forward().args(), FA_AUTO, stream_));
    stream_.wait();
  }

  Choice explain(const RowPlan& row) override {
    if (row.baseline == kCublasSoftmax) return explain_cublas();
    if (row.baseline == kCudnn) return explain_cudnn();
    fa_backward_plan plan = {};
    plan.size = sizeof plan;
    char text[2048] = "";
    const fa_status status =
        fa_backward_explain(&memory_.args(), version_of(row), &plan, text, sizeof text, nullptr);
    if (status == FA_UNSUPPORTED) return {false, "", 0, one_line(fa_last_error())};
    detail::check(status);
    if (plan.runs == 0) return {false, "", 0, one_line(text)};
    return {true, plan.kernel, 0, ""};
  }

  void run_once(const RowPlan& row) override {
    memory_.spoil_gradients();
    if (problem_.passes == Passes::both) memory_.forward().spoil_outputs(stream_);
    call(row)(0);
    stream_.wait();
  }

  std::string check(const RowPlan& row) override {
    const GradientReader read = memory_.reader();
    const Problem& p = problem_;
    // In 16 bits a baseline rounds what it likes on the way, which the tests' rule does not allow for.
    const bool loose = !row.baseline.empty() && p.dtype != Dtype::float32;
    if (loose || p.flops() > kWholeCheckFlops) return check_gradients(p, read);
    const auto all = [](const HeadReader& rows, std::int64_t B, std::int64_t H, std::int64_t S) {
      std::vector<float> values;
      for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t h = 0; h < H; ++h) {
          const std::vector<float> head = rows(b, h, 0, S);
          values.insert(values.end(), head.begin(), head.end());
        }
      }
      return values;
    };
    const test::BackwardInputs inputs = {memory_.forward().inputs(stream_), all(read.out, p.B, p.H, p.M),
                                         all(read.dout, p.B, p.H, p.M), all(read.lse, p.B, p.H, p.M)};
    return test::check_backward(
        p, inputs, {all(read.dq, p.B, p.H, p.M), all(read.dk, p.B, p.Hk, p.N), all(read.dv, p.B, p.Hk, p.N)});
  }

  Candidate candidate(const RowPlan& row) override {
    return {row.key, row.clock, device_clock(row.clock, stream_, call(row))};
  }

  bool memory_bound() const override { return false; }
  int copies() const override { return 1; }

 private:
  static fa_version version_of(const RowPlan& row) { return static_cast<fa_version>(row.version); }

  Choice explain_cublas() const {
    std::string why_not = why_no_cublas_softmax(problem_);
    if (why_not.empty() && !explicit_) {
      why_not = why_not_enough_memory(ExplicitAttention::bytes(problem_));
      if (!why_not.empty()) why_not = std::string(kCublasSoftmax) + ": " + why_not;
    }
    if (!why_not.empty()) return {false, "", 0, why_not};
    return {true, std::string(kCublasSoftmax) + ", P kept", 0, ""};
  }

  Choice explain_cudnn() {
    std::string why_not = why_no_cudnn(problem_);
    if (!why_not.empty()) return {false, "", 0, why_not};
    try {
      const CudnnShape shape = bench::shape_of(problem_);
      if (!cudnn_) cudnn_ = CudnnSdpaBackward::create(shape, &why_not);
      if (cudnn_ && !cudnn_forward_ && problem_.passes == Passes::both)
        cudnn_forward_ = CudnnSdpa::create(shape, true, &why_not);
    } catch (const std::runtime_error& error) {
      why_not = error.what();
    }
    if (!why_not.empty()) return {false, "", 0, one_line(why_not)};
    return {true, "cudnn " + cudnn_version(nullptr) + ", " + cudnn_->engine(), 0, ""};
  }

  /// One for each use: backward's and forward's may be in flight together.
  void* workspace(const std::string& whose, std::size_t bytes) {
    const auto found = workspaces_.find(whose);
    if (found != workspaces_.end()) return found->second.data();
    return workspaces_.emplace(whose, bytes).first->second.data();
  }

  Enqueue call(const RowPlan& row) {
    if (row.baseline == kCublasSoftmax) return call_cublas();
    if (row.baseline == kCudnn) return call_cudnn();
    const fa_version version = version_of(row);
    const std::string name = name_of(row.version);
    fa_backward_args backward = memory_.args();
    detail::check(fa_backward_workspace_size(&backward, version, &backward.workspace_size));
    backward.workspace = workspace(name + " backward", backward.workspace_size);
    if (problem_.passes == Passes::backward) {
      return [this, backward, version](std::int64_t) {
        detail::check(fa_backward(&backward, version, stream_));
      };
    }
    fa_forward_args forward = memory_.forward().args();
    detail::check(fa_forward_workspace_size(&forward, version, &forward.workspace_size));
    forward.workspace = workspace(name + " forward", forward.workspace_size);
    return [this, forward, backward, version](std::int64_t) {
      detail::check(fa_forward(&forward, version, stream_));
      detail::check(fa_backward(&backward, version, stream_));
    };
  }

  Enqueue call_cublas() {
    fa_forward_args forward = memory_.forward().args();
    fa_backward_args backward = memory_.args();
    const bool both = problem_.passes == Passes::both;
    if (!both) {
      // Backward alone reads the P and the O that forward left; the library's O stays for the other rows.
      const std::size_t bytes = static_cast<std::size_t>(problem_.B * problem_.H * problem_.M * problem_.Dv) *
                                size_of(problem_.dtype);
      forward.out.data = backward.out.data = workspace("cublas_softmax out", bytes);
      forward.lse = nullptr;
    }
    if (!explicit_) {
      explicit_.emplace(problem_, stream_);
      explicit_->forward(forward);
    }
    return [this, forward, backward, both](std::int64_t) {
      if (both) explicit_->forward(forward);
      explicit_->backward(backward);
    };
  }

  Enqueue call_cudnn() {
    const fa_backward_args a = memory_.args();
    float* const lse = memory_.forward().args().lse;
    void* const space = workspace("cudnn backward", cudnn_->workspace_bytes());
    void* const forward_space =
        cudnn_forward_ ? workspace("cudnn forward", cudnn_forward_->workspace_bytes()) : nullptr;
    return [this, a, lse, space, forward_space](std::int64_t) {
      if (cudnn_forward_)
        cudnn_forward_->run(a.q.data, a.k.data, a.v.data, a.out.data, lse, forward_space, stream_);
      cudnn_->run(a.q.data, a.k.data, a.v.data, a.out.data, a.lse, a.dout.data, a.dq.data, a.dk.data,
                  a.dv.data, space, stream_);
    };
  }

  BackwardProblem memory_;
  const Problem& problem_;
  const DeviceStream& stream_;
  std::optional<ExplicitAttention> explicit_;
  std::unique_ptr<CudnnSdpa> cudnn_forward_;  // where the problem has both passes
  std::unique_ptr<CudnnSdpaBackward> cudnn_;
  std::map<std::string, DeviceMemory> workspaces_;
};

}  // namespace

std::unique_ptr<Fixture> device_backward_fixture(const Problem& problem, const DeviceStream& stream) {
  return std::make_unique<DeviceBackward>(problem, stream);
}

}  // namespace fa::bench
