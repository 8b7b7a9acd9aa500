/// From a validated problem to what a kernel gets.
#pragma once

#include "kernels/params.hpp"

namespace fa::internal {

ForwardParams make_params(const ForwardProblem& problem, const fa_forward_args& args);

}  // namespace fa::internal
