/// V1's door: plain C++.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/params.hpp"

namespace fa::internal::v1 {

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties& device);
size_t forward_workspace(const ForwardProblem& problem, const DeviceProperties& device, int threads);
int prepare_forward(const ForwardProblem& problem, const DeviceProperties& device);
int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                   Dtype dtype_out);

}  // namespace fa::internal::v1
