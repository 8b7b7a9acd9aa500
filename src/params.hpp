/// From a validated problem to what a kernel gets.
#pragma once

#include "kernels/params.hpp"

namespace fa::internal {

ForwardParams make_params(const ForwardProblem& problem, const fa_forward_args& args);
BackwardParams make_params(const BackwardProblem& problem, const fa_backward_args& args);

}  // namespace fa::internal
