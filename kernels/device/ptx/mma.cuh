/// Products of a warp on tensor cores (sm_80). PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
/// point type".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace fa::internal::ptx {

/// C[16][8] += A[16][16] B[16][8], 16-bit inputs, fp32 sums. With g = lane / 4 and t = lane % 4 a lane holds
///   - a[0], a[1]: columns 2t and 2t + 1 of rows g and g + 8
///   - a[2], a[3]: columns 2t + 8 and 2t + 9 of rows g and g + 8
///   - b0: rows 2t and 2t + 1 of column g
///   - b1: rows 2t + 8 and 2t + 9 of column g
///   - c[0], c[1]: columns 2t and 2t + 1 of row g
///   - c[2], c[3]: the same of row g + 8
template <class T>
__device__ void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ inline void mma_m16n8k16<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void mma_m16n8k16<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace fa::internal::ptx
