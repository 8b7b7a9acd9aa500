/// Division by numbers that the host knows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/tile_order.hpp"

namespace fa::internal {

/// The upper half of a b.
__host__ __device__ inline uint32_t multiply_high(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
#endif
}

/// n / d, rounded down, for 0 <= n < 2^31.
__host__ __device__ inline int divide(int n, const Divisor& d) {
  const uint32_t high = multiply_high(static_cast<uint32_t>(n), d.multiplier) >> d.shift;
  return d.multiplier == 0 ? n : static_cast<int>(high);
}

}  // namespace fa::internal
