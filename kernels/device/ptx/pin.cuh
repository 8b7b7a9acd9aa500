/// Empty instructions that bind the compiler: what writes a register stays before, what reads it behind. PTX
/// ISA knows nothing of them, and ptxas may still move machine code.
#pragma once

#include <cstdint>

namespace fa::internal::ptx {

__device__ inline void pin(int& x) {
  asm volatile("" : "+r"(x)::"memory");
}

/// Accumulators: the compiler doesn't know that a product under way owns them until the wait.
template <int kCount>
__device__ inline void pin(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

/// Left operands in registers.
template <int kCount>
__device__ inline void pin(uint32_t (&x)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(x[i][j])::"memory");
  }
}

}  // namespace fa::internal::ptx
