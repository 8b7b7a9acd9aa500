#include "bench/host_backward.hpp"

#include <algorithm>
#include <cstring>

#include "bench/gradient_check.hpp"
#include "bench/host_problem.hpp"
#include "bench/one_line.hpp"
#include "tests/support/compare.hpp"

namespace fa::bench {

namespace {

using test::Passes;
using test::Placed;
using test::Problem;

// Up to here every element is compared with the oracle's.
constexpr double kWholeCheckFlops = 1e9;

/// backward takes O in the inputs' type, and LSE.
Problem with_lse(Problem problem) {
  problem.dtype_out = Dtype::none;
  problem.lse = true;
  return problem;
}

/// dO alone: out and lse are forward's.
std::vector<float> make_dout(const Problem& problem) {
  Problem as_query = problem;  // q of another seed, in dO's shape
  as_query.D = problem.Dv;
  as_query.N = 0;
  as_query.seed = ~problem.seed;
  as_query.data = test::Data::normal;
  as_query.layout = test::Layout::bhsd;
  return test::make_inputs(as_query).q;
}

class HostBackward : public Fixture {
 public:
  explicit HostBackward(const Problem& problem)
      : problem_(with_lse(problem)),
        placed_(test::place_backward(problem_)),
        inputs_(test::make_inputs(problem_)),
        forward_(problem_, inputs_) {
    const Dtype in = problem_.dtype, to = problem_.gradient_dtype();
    const auto off = [&](Dtype dtype) {
      return problem_.layout == test::Layout::unaligned ? size_of(dtype) : std::size_t{0};
    };
    dout_.resize(placed_.dout, in, off(in));
    test::scatter(make_dout(problem_).data(), placed_.dout, in, dout_.data);
    dq_.resize(placed_.dq, to, off(to));
    if (!placed_.one_gradient_buffer) {
      dk_.resize(placed_.dk, to, off(to));
      dv_.resize(placed_.dv, to, off(to));
    }
    std::byte* const dk = placed_.one_gradient_buffer ? dq_.data : dk_.data;
    std::byte* const dv = placed_.one_gradient_buffer ? dq_.data : dv_.data;

    const fa_forward_args& forward = forward_.args();
    detail::check(fa_forward(&forward, FA_CPU, nullptr));
    detail::check(fa_backward_args_init(&args_, sizeof args_));
    args_.q = forward.q;
    args_.k = forward.k;
    args_.v = forward.v;
    args_.out = forward.out;
    args_.lse = forward.lse;
    args_.dout = test::c_tensor(dout_.data, placed_.dout, in);
    args_.dq = test::c_tensor(dq_.data, placed_.dq, to);
    args_.dk = test::c_tensor(dk, placed_.dk, to);
    args_.dv = test::c_tensor(dv, placed_.dv, to);
    test::set_options(args_, problem_);
  }

  Choice explain(const RowPlan& row) override {
    fa_backward_plan plan = {};
    plan.size = sizeof plan;
    char text[1024] = "";
    const fa_status status = fa_backward_explain(&args(row), version(row), &plan, text, sizeof text, nullptr);
    if (status == FA_UNSUPPORTED) return {false, "", 0, fa_last_error()};
    detail::check(status);
    if (plan.runs == 0) return {false, "", 0, one_line(text)};
    return {true, plan.kernel, plan.threads, ""};
  }

  void run_once(const RowPlan& row) override {
    for (HostProblem::Buffer* buffer : {&dq_, &dk_, &dv_}) {
      std::fill(buffer->bytes.begin(), buffer->bytes.end(), std::byte{0xff});
    }
    if (problem_.passes == Passes::both) forward_.spoil_outputs();
    call(row);
  }

  std::string check(const RowPlan&) override {
    const GradientReader read = reader();
    if (problem_.flops() > kWholeCheckFlops) return check_gradients(problem_, read);
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
    const Problem& p = problem_;
    const test::BackwardInputs inputs = {inputs_, all(read.out, p.B, p.H, p.M), all(read.dout, p.B, p.H, p.M),
                                         all(read.lse, p.B, p.H, p.M)};
    return test::check_backward(
        p, inputs, {all(read.dq, p.B, p.H, p.M), all(read.dk, p.B, p.Hk, p.N), all(read.dv, p.B, p.Hk, p.N)});
  }

  Candidate candidate(const RowPlan& row) override {
    return {row.key, Clock::wall, wall_clock([this, row] { call(row); })};
  }

  // Five products and more for what is read once.
  bool memory_bound() const override { return false; }
  int copies() const override { return 1; }

 private:
  static fa_version version(const RowPlan& row) { return static_cast<fa_version>(row.version); }

  const fa_backward_args& args(const RowPlan& row) {
    args_.threads = row.threads;
    return args_;
  }

  void call(const RowPlan& row) {
    if (problem_.passes == Passes::both) {
      fa_forward_args& forward = forward_.args();
      forward.threads = row.threads;
      detail::check(fa_forward(&forward, version(row), nullptr));
    }
    detail::check(fa_backward(&args(row), version(row), nullptr));
  }

  GradientReader reader() const {
    const auto rows_of = [](const fa_tensor& tensor) {
      return [tensor](std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t last) {
        const std::int64_t width = tensor.size[3], *const stride = tensor.stride;
        const Placed part = {{1, 1, last - first, width},
                             {0, 0, stride[2], 1},
                             b * stride[0] + head * stride[1] + first * stride[2],
                             0};
        std::vector<float> values(static_cast<std::size_t>((last - first) * width));
        test::gather(static_cast<const std::byte*>(tensor.data), part, static_cast<Dtype>(tensor.dtype),
                     values.data());
        return values;
      };
    };
    const float* const lse = args_.lse;
    const std::int64_t H = problem_.H, M = problem_.M;
    return {.in = {rows_of(args_.q), rows_of(args_.k), rows_of(args_.v)},
            .out = rows_of(args_.out),
            .dout = rows_of(args_.dout),
            .lse =
                [lse, H, M](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t last) {
                  const float* const rows = lse + (b * H + h) * M;
                  return std::vector<float>(rows + first, rows + last);
                },
            .dq = rows_of(args_.dq),
            .dk = rows_of(args_.dk),
            .dv = rows_of(args_.dv)};
  }

  Problem problem_;
  test::PlacedBackward placed_;
  test::Inputs inputs_;
  HostProblem forward_;
  HostProblem::Buffer dout_, dq_, dk_, dv_;
  fa_backward_args args_;
};

}  // namespace

std::unique_ptr<Fixture> host_backward_fixture(const Problem& problem) {
  return std::make_unique<HostBackward>(problem);
}

}  // namespace fa::bench
