/// Reductions across a warp, or across aligned groups of its lanes; every lane gets the result.
///
/// By XOR butterfly (group_*): every step every lane meets another, and the last leaves the result in all of
/// them. As a tree (tree_*): half of the lanes fall out at every step, lane 0 has the result, and one shuffle
/// more hands it back.
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

__device__ inline float tree_max(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_down_sync(kFullWarp, x, distance));
  return __shfl_sync(kFullWarp, x, 0);
}

__device__ inline float tree_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_down_sync(kFullWarp, x, distance);
  return __shfl_sync(kFullWarp, x, 0);
}

}  // namespace fa::internal
