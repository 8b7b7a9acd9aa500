#include "src/params.hpp"

namespace fa::internal {

ForwardParams make_params(const ForwardProblem& problem, const fa_forward_args& args) {
  const auto narrow = [](int64_t x) { return static_cast<int32_t>(x); };  // validate bounds every size
  return {
      .q = args.q.data,
      .k = args.k.data,
      .v = args.v.data,
      .out = args.out.data,
      .lse = args.lse,
      .workspace = nullptr,
      .workspace_size = 0,
      .q_stride = problem.q,
      .k_stride = problem.k,
      .v_stride = problem.v,
      .out_stride = problem.out,
      .B = narrow(problem.B),
      .H = narrow(problem.H),
      .Hk = narrow(problem.Hk),
      .M = narrow(problem.M),
      .N = narrow(problem.N),
      .D = narrow(problem.D),
      .Dv = narrow(problem.Dv),
      .group = narrow(problem.H / problem.Hk),
      .window_lo = narrow(problem.window_lo),
      .window_hi = narrow(problem.window_hi),
      .scale = problem.scale,
  };
}

}  // namespace fa::internal
