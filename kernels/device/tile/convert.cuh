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

/// Rounds to nearest even.
template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// Two neighbouring elements, aligned to their pair, as fp32.
__device__ inline float2 load_pair(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ inline float2 load_pair(const __half* from) {
  return __half22float2(*reinterpret_cast<const __half2*>(from));
}
__device__ inline float2 load_pair(const __nv_bfloat16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}

/// 16 bytes of neighbouring elements, aligned to them, as fp32: one load.
__device__ inline void load_16_bytes(const float* from, float (&x)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  x[0] = four.x;
  x[1] = four.y;
  x[2] = four.z;
  x[3] = four.w;
}
template <class T>
__device__ void load_16_bytes(const T* from, float (&x)[8]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const T* pairs[4] = {reinterpret_cast<const T*>(&bits.x), reinterpret_cast<const T*>(&bits.y),
                       reinterpret_cast<const T*>(&bits.z), reinterpret_cast<const T*>(&bits.w)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = load_pair(pairs[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

/// Two numbers as neighbouring 16-bit elements, the first in the lower half; rounds to nearest even.
template <class T>
__device__ uint32_t pack(float low, float high);
template <>
__device__ inline uint32_t pack<__half>(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}
template <>
__device__ inline uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
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
