/// Sums in global memory that many blocks add to.
#pragma once

#include <cuda_runtime.h>

namespace fa::internal {

/// to[0..3] += x, each number atomically; to is aligned to 16 bytes. One instruction from Hopper on.
__device__ inline void atomic_add_four(float* to, float4 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(to), x);
#else
  atomicAdd(to, x.x);
  atomicAdd(to + 1, x.y);
  atomicAdd(to + 2, x.z);
  atomicAdd(to + 3, x.w);
#endif
}

}  // namespace fa::internal
