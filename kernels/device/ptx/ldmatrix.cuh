/// Four 8 x 8 matrices of 16-bit elements from shared memory to a warp's registers (sm_75). PTX ISA,
/// "Warp-level matrix load instruction: ldmatrix".
#pragma once

#include <cstdint>

namespace fa::internal::ptx {

/// Lane l names the 16-byte row l % 8 of matrix l / 8. Lane l gets of matrix i, in r[i], the elements 2 (l %
/// 4) and 2 (l % 4) + 1 of row l / 4.
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

/// The same of the transposed matrices: elements 2 (l % 4) and 2 (l % 4) + 1 of column l / 4.
__device__ inline void ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

}  // namespace fa::internal::ptx
