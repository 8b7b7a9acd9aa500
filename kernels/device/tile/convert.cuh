/// Element types to fp32 and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/params.hpp"

namespace fa::internal {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

/// Rounds to nearest even, to a type known only at run time.
__device__ inline void store_as(Dtype dtype, void* data, int64_t offset, float x) {
  if (dtype == Dtype::float32) {
    static_cast<float*>(data)[offset] = x;
  } else if (dtype == Dtype::float16) {
    static_cast<__half*>(data)[offset] = __float2half_rn(x);
  } else {
    static_cast<__nv_bfloat16*>(data)[offset] = __float2bfloat16_rn(x);
  }
}

}  // namespace fa::internal
