/// Reductions across a warp, or across aligned groups of its lanes, by XOR butterflies: every lane gets the
/// result.
#pragma once

namespace fa::internal {

inline constexpr unsigned kFullWarp = 0xffffffffu;

/// Maximum over groups of kLanes neighbouring lanes (a power of two).
template <int kLanes = 32>
__device__ inline float group_max(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, distance));
  }
  return x;
}

/// Sum over groups of kLanes neighbouring lanes (a power of two).
template <int kLanes = 32>
__device__ inline float group_sum(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kFullWarp, x, distance);
  }
  return x;
}

}  // namespace fa::internal
