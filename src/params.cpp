#include "src/params.hpp"

namespace fa::internal {
namespace {

int32_t narrow(int64_t x) {  // validate bounds every size
  return static_cast<int32_t>(x);
}

/// What both passes have.
template <class Params, class Problem, class Args>
Params shared_params(const Problem& problem, const Args& args) {
  Params params{};
  params.q = args.q.data;
  params.k = args.k.data;
  params.v = args.v.data;
  params.out = args.out.data;
  params.lse = args.lse;
  params.q_stride = problem.q;
  params.k_stride = problem.k;
  params.v_stride = problem.v;
  params.out_stride = problem.out;
  params.B = narrow(problem.B);
  params.H = narrow(problem.H);
  params.Hk = narrow(problem.Hk);
  params.M = narrow(problem.M);
  params.N = narrow(problem.N);
  params.D = narrow(problem.D);
  params.Dv = narrow(problem.Dv);
  params.group = narrow(problem.H / problem.Hk);
  params.window_lo = narrow(problem.window_lo);
  params.window_hi = narrow(problem.window_hi);
  params.scale = problem.scale;
  return params;
}

}  // namespace

ForwardParams make_params(const ForwardProblem& problem, const fa_forward_args& args) {
  return shared_params<ForwardParams>(problem, args);
}

BackwardParams make_params(const BackwardProblem& problem, const fa_backward_args& args) {
  BackwardParams params = shared_params<BackwardParams>(problem, args);
  params.dout = args.dout.data;
  params.dq = args.dq.data;
  params.dk = args.dk.data;
  params.dv = args.dv.data;
  params.dout_stride = problem.dout;
  params.dq_stride = problem.dq;
  params.dk_stride = problem.dk;
  params.dv_stride = problem.dv;
  params.deterministic = problem.deterministic;
  return params;
}

}  // namespace fa::internal
