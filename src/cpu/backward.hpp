/// The CPU backend, backward: a row of the kernel table like any other.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/params.hpp"

namespace fa::internal::cpu {

/// Empty: it takes every valid problem.
std::string reject_backward(const BackwardProblem& problem, const DeviceProperties&);

/// Bytes for Delta, one float a row, and scratch for `threads` threads. 0 where no gradient has elements.
size_t backward_workspace(const BackwardProblem& problem, const DeviceProperties&, int threads);

/// Computes the backward pass on context.threads threads (or fewer, where there is less work), in
/// params.workspace. Returns 0. The result does not depend on the number of threads, bit for bit.
int launch_backward(const BackwardParams& params, const LaunchContext& context, Dtype dtype_in,
                    Dtype dtype_gradient);

}  // namespace fa::internal::cpu
