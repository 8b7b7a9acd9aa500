#include "src/params.hpp"

namespace fa::internal {
namespace {

int32_t narrow(int64_t x) {  // validate bounds every size
  return static_cast<int32_t>(x);
}

}  // namespace

ForwardParams make_params(const ForwardProblem& problem, const fa_forward_args& args) {
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

BackwardParams make_params(const BackwardProblem& problem, const fa_backward_args& args) {
  return {
      .q = args.q.data,
      .k = args.k.data,
      .v = args.v.data,
      .out = args.out.data,
      .dout = args.dout.data,
      .lse = args.lse,
      .dq = args.dq.data,
      .dk = args.dk.data,
      .dv = args.dv.data,
      .workspace = nullptr,
      .q_stride = problem.q,
      .k_stride = problem.k,
      .v_stride = problem.v,
      .out_stride = problem.out,
      .dout_stride = problem.dout,
      .dq_stride = problem.dq,
      .dk_stride = problem.dk,
      .dv_stride = problem.dv,
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
      .deterministic = problem.deterministic,
  };
}

}  // namespace fa::internal
