/// Reasons to reject a problem that several rooms share, in the user's words. For .cu files.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kernels/params.hpp"

namespace fa::internal {

inline std::string reject_shared_memory(int bytes, const DeviceProperties& device) {
  if (bytes <= device.shared_memory_per_block) return "";
  return "needs " + std::to_string(bytes) + " bytes of shared memory, and a block has " +
         std::to_string(device.shared_memory_per_block);
}

/// A grid of one block for each (batch, head, tile of block_m queries).
inline std::string reject_grid(const ForwardProblem& problem, int block_m) {
  const int64_t query_tiles = (problem.M + block_m - 1) / block_m;
  // In double: the product of the sizes may not fit 64 bits.
  const double blocks = static_cast<double>(problem.B * problem.H) * static_cast<double>(query_tiles);
  return blocks > std::numeric_limits<int32_t>::max() ? "needs more than 2^31 - 1 blocks" : "";
}

/// Of a room with tiles for rows of up to `largest` features. Problem: a ForwardProblem or a BackwardProblem.
template <class Problem>
std::string reject_head_dims_above(const Problem& problem, int64_t largest) {
  if (problem.D <= largest && problem.Dv <= largest) return "";
  return "takes D and Dv up to " + std::to_string(largest) + ", but D = " + std::to_string(problem.D) +
         " and Dv = " + std::to_string(problem.Dv);
}

inline std::string reject_head_dim(const ForwardProblem& problem, int head_dim) {
  if (problem.D == head_dim && problem.Dv == head_dim) return "";
  return "takes D = Dv = " + std::to_string(head_dim) + " alone, but D = " + std::to_string(problem.D) +
         " and Dv = " + std::to_string(problem.Dv);
}

/// Rows that copies of so many bytes cannot read.
inline std::string reject_unaligned(const ForwardProblem& problem, int copy_bytes = 16) {
  const struct {
    const char* name;
    int alignment;
  } inputs[] = {{"q", problem.q_alignment}, {"k", problem.k_alignment}, {"v", problem.v_alignment}};
  for (const auto& [name, alignment] : inputs) {
    if (alignment < copy_bytes) {
      return "needs rows aligned to " + std::to_string(copy_bytes) + " bytes, but rows of " + name +
             " are aligned to " + std::to_string(alignment);
    }
  }
  return "";
}

/// Of a room whose tiles hold one head dimension and are read 16 bytes at a time.
inline std::string reject_fixed_tiles(const ForwardProblem& problem, int head_dim, int block_m) {
  std::string reason = reject_head_dim(problem, head_dim);
  if (reason.empty()) reason = reject_unaligned(problem);
  return reason.empty() ? reject_grid(problem, block_m) : reason;
}

}  // namespace fa::internal
