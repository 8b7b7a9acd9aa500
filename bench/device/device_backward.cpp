#include "bench/device/device_backward.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bench/device/clocks.hpp"
#include "bench/device/device_problem.hpp"
#include "bench/device/random_fill.hpp"
#include "bench/gradient_check.hpp"
#include "tests/support/compare.hpp"

namespace fa::bench {

namespace {

using test::Passes;
using test::Placed;
using test::Problem;

// Up to here every element is compared with the oracle's.
constexpr double kWholeCheckFlops = 4e9;

/// backward takes O in the inputs' type, and LSE.
Problem with_lse(Problem problem) {
  problem.dtype_out = Dtype::none;
  problem.lse = true;
  return problem;
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

class DeviceBackward : public Fixture {
 public:
  DeviceBackward(const Problem& problem, const DeviceStream& stream)
      : problem_(with_lse(problem)),
        placed_(test::place_backward(problem_)),
        stream_(stream),
        forward_(problem_, 0, stream),
        dout_(bytes_of(placed_.dout, problem_.dtype)),
        dq_(bytes_of(placed_.dq, problem_.gradient_dtype())),
        dk_(placed_.one_gradient_buffer ? 0 : bytes_of(placed_.dk, problem_.gradient_dtype())),
        dv_(placed_.one_gradient_buffer ? 0 : bytes_of(placed_.dv, problem_.gradient_dtype())) {
    const Dtype in = problem_.dtype, to = problem_.gradient_dtype();
    std::byte* const dout = dout_.data() + misalignment(in);
    check_cuda(cudaMemsetAsync(dout_.data(), 0xff, dout_.bytes(), stream_), "cudaMemsetAsync");
    fill_normal(dout, placed_.dout, in, ~problem_.seed, 1.0f, stream_);

    const fa_forward_args& forward = forward_.args();
    detail::check(fa_forward(&forward, FA_AUTO, stream_));
    detail::check(fa_backward_args_init(&args_, sizeof args_));
    args_.q = forward.q;
    args_.k = forward.k;
    args_.v = forward.v;
    args_.out = forward.out;
    args_.lse = forward.lse;
    std::byte* const dq = dq_.data() + misalignment(to);
    const bool one = placed_.one_gradient_buffer;
    args_.dout = test::c_tensor(dout, placed_.dout, in);
    args_.dq = test::c_tensor(dq, placed_.dq, to);
    args_.dk = test::c_tensor(one ? dq : dk_.data() + misalignment(to), placed_.dk, to);
    args_.dv = test::c_tensor(one ? dq : dv_.data() + misalignment(to), placed_.dv, to);
    test::set_options(args_, problem_);
    stream_.wait();
  }

  Choice explain(const RowPlan& row) override {
    fa_backward_plan plan = {};
    plan.size = sizeof plan;
    char text[2048] = "";
    const fa_status status = fa_backward_explain(&args_, version_of(row), &plan, text, sizeof text, nullptr);
    if (status == FA_UNSUPPORTED) return {false, "", 0, one_line(fa_last_error())};
    detail::check(status);
    if (plan.runs == 0) return {false, "", 0, one_line(text)};
    return {true, plan.kernel, 0, ""};
  }

  void run_once(const RowPlan& row) override {
    for (const DeviceMemory* memory : {&dq_, &dk_, &dv_}) {
      check_cuda(cudaMemsetAsync(memory->data(), 0xff, memory->bytes(), stream_), "cudaMemsetAsync");
    }
    if (problem_.passes == Passes::both) forward_.spoil_outputs(stream_);
    call(row)(0);
    stream_.wait();
  }

  std::string check(const RowPlan&) override {
    const GradientReader read = reader();
    const Problem& p = problem_;
    if (p.flops() > kWholeCheckFlops) return check_gradients(p, read);
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
    const test::BackwardInputs inputs = {forward_.inputs(stream_), all(read.out, p.B, p.H, p.M),
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

  std::size_t misalignment(Dtype dtype) const {
    return problem_.layout == test::Layout::unaligned ? size_of(dtype) : 0;
  }
  std::size_t bytes_of(const Placed& placed, Dtype dtype) const {
    return static_cast<std::size_t>(placed.elements) * size_of(dtype) + misalignment(dtype);
  }

  /// One for each use: backward's and forward's may be in flight together.
  void* workspace(const std::string& whose, std::size_t bytes) {
    const auto found = workspaces_.find(whose);
    if (found != workspaces_.end()) return found->second.data();
    return workspaces_.emplace(whose, bytes).first->second.data();
  }

  Enqueue call(const RowPlan& row) {
    const fa_version version = version_of(row);
    const std::string name = name_of(row.version);
    fa_backward_args backward = args_;
    detail::check(fa_backward_workspace_size(&backward, version, &backward.workspace_size));
    backward.workspace = workspace(name + " backward", backward.workspace_size);
    if (problem_.passes == Passes::backward) {
      return [this, backward, version](std::int64_t) {
        detail::check(fa_backward(&backward, version, stream_));
      };
    }
    fa_forward_args forward = forward_.args();
    detail::check(fa_forward_workspace_size(&forward, version, &forward.workspace_size));
    forward.workspace = workspace(name + " forward", forward.workspace_size);
    return [this, forward, backward, version](std::int64_t) {
      detail::check(fa_forward(&forward, version, stream_));
      detail::check(fa_backward(&backward, version, stream_));
    };
  }

  GradientReader reader() const {
    const fa_tensor lse = {const_cast<float*>(args_.lse),
                           FA_FLOAT32,
                           0,
                           {problem_.B, problem_.H, problem_.M, 1},
                           {problem_.H * problem_.M, problem_.M, 1, 1}};
    return {.in = forward_.input_reader(stream_),
            .out = rows_reader(args_.out, stream_),
            .dout = rows_reader(args_.dout, stream_),
            .lse = rows_reader(lse, stream_),
            .dq = rows_reader(args_.dq, stream_),
            .dk = rows_reader(args_.dk, stream_),
            .dv = rows_reader(args_.dv, stream_)};
  }

  Problem problem_;
  test::PlacedBackward placed_;
  const DeviceStream& stream_;
  DeviceProblem forward_;
  DeviceMemory dout_, dq_, dk_, dv_;  // dq_ holds all gradients of a packed problem
  fa_backward_args args_;
  std::map<std::string, DeviceMemory> workspaces_;
};

}  // namespace

std::unique_ptr<Fixture> device_backward_fixture(const Problem& problem, const DeviceStream& stream) {
  return std::make_unique<DeviceBackward>(problem, stream);
}

}  // namespace fa::bench
