/// What V7's ablations.cu and candidates.cu share.
#pragma once

#include <string>

#include "kernels/ablations.hpp"
#include "kernels/reject.hpp"
#include "kernels/v7_ampere/instance.cuh"

namespace fa::internal::v7 {

/// Beyond what the rung rejects: variants are built for copies of whole chunks alone.
inline std::string reject_variant(const ForwardProblem& problem, int shared_bytes,
                                  const DeviceProperties& device) {
  if (problem.D % 8 != 0 || problem.Dv % 8 != 0) return "not built for D and Dv that are no multiples of 8";
  const std::string reason = reject_unaligned(problem);
  return reason.empty() ? reject_shared_memory(shared_bytes, device) : reason;
}

}  // namespace fa::internal::v7
