#include "bench/device/backward_problem.hpp"

#include "bench/device/random_fill.hpp"

namespace fa::bench {

namespace {

using test::Problem;

Problem with_lse(Problem problem) {
  problem.dtype_out = Dtype::none;
  problem.lse = true;
  return problem;
}

}  // namespace

BackwardProblem::BackwardProblem(const Problem& problem, const DeviceStream& stream)
    : problem_(with_lse(problem)),
      placed_(test::place_backward(problem_)),
      stream_(stream),
      forward_(problem_, 0, stream),
      dout_(buffer_bytes(problem_, placed_.dout, problem_.dtype)),
      dq_(buffer_bytes(problem_, placed_.dq, problem_.gradient_dtype())),
      dk_(placed_.one_gradient_buffer ? 0 : buffer_bytes(problem_, placed_.dk, problem_.gradient_dtype())),
      dv_(placed_.one_gradient_buffer ? 0 : buffer_bytes(problem_, placed_.dv, problem_.gradient_dtype())) {
  const Dtype in = problem_.dtype, to = problem_.gradient_dtype();
  std::byte* const dout = dout_.data() + misalignment(problem_, in);
  check_cuda(cudaMemsetAsync(dout_.data(), 0xff, dout_.bytes(), stream_), "cudaMemsetAsync");
  fill_normal(dout, placed_.dout, in, ~problem_.seed, 1.0f, stream_);
  spoil_gradients();

  const fa_forward_args& forward = forward_.args();
  detail::check(fa_backward_args_init(&args_, sizeof args_));
  args_.q = forward.q;
  args_.k = forward.k;
  args_.v = forward.v;
  args_.out = forward.out;
  args_.lse = forward.lse;
  std::byte* const dq = dq_.data() + misalignment(problem_, to);
  const bool one = placed_.one_gradient_buffer;
  args_.dout = test::c_tensor(dout, placed_.dout, in);
  args_.dq = test::c_tensor(dq, placed_.dq, to);
  args_.dk = test::c_tensor(one ? dq : dk_.data() + misalignment(problem_, to), placed_.dk, to);
  args_.dv = test::c_tensor(one ? dq : dv_.data() + misalignment(problem_, to), placed_.dv, to);
  test::set_options(args_, problem_);
}

void BackwardProblem::spoil_gradients() {
  for (const DeviceMemory* memory : {&dq_, &dk_, &dv_}) {
    check_cuda(cudaMemsetAsync(memory->data(), 0xff, memory->bytes(), stream_), "cudaMemsetAsync");
  }
}

GradientReader BackwardProblem::reader() const {
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

}  // namespace fa::bench
