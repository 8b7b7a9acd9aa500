/// The CPU backend, forward: a row of the kernel table like any other.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/params.hpp"

namespace fa::internal::cpu {

/// Empty: it takes every valid problem.
std::string reject_forward(const ForwardProblem& problem, const DeviceProperties&);

/// Bytes of scratch for `threads` threads. 0 where the problem has no rows.
size_t forward_workspace(const ForwardProblem& problem, const DeviceProperties&, int threads);

/// Computes the forward pass on context.threads threads (or fewer, where there is less work), in
/// params.workspace. Returns 0. The result does not depend on the number of threads, bit for bit.
int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                   Dtype dtype_out);

/// "AVX-512", "AVX2", "NEON", "plain": what the code uses on this machine.
const char* simd_target();

/// "highway 1.0.3" or "plain": what it was written with.
const char* simd_library();

}  // namespace fa::internal::cpu
