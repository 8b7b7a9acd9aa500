/// Products of a warp's eight rows on tensor cores through nvcuda::wmma (introduced by V5): shape m8n32k16,
/// 16-bit inputs, fp32 sums. (CUDA C++ Programming Guide, "Warp matrix functions".)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <type_traits>

namespace fa::internal {

/// sC[8][32] = sA[8][kDepth] B[kDepth][32], by one warp. B's element (k, n) is sB[k * kPitchB + n] where
/// LayoutB is nvcuda::wmma::row_major, and sB[n * kPitchB + k] where it is col_major. Pointers are aligned to
/// 32 bytes, pitches to 16. Which lane holds which element of a fragment is not specified, so that the result
/// goes to shared memory.
template <int kDepth, class LayoutB, int kPitchA, int kPitchB, int kPitchC, class T>
__device__ void multiply_8x32(const T* sA, const T* sB, float* sC) {
  namespace wmma = nvcuda::wmma;
  wmma::fragment<wmma::accumulator, 8, 32, 16, float> C;
  wmma::fill_fragment(C, 0.0f);
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    wmma::fragment<wmma::matrix_a, 8, 32, 16, T, wmma::row_major> A;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, T, LayoutB> B;
    constexpr bool kRowsAreDepth = std::is_same_v<LayoutB, wmma::row_major>;
    wmma::load_matrix_sync(A, sA + k, kPitchA);
    wmma::load_matrix_sync(B, sB + (kRowsAreDepth ? k * kPitchB : k), kPitchB);
    wmma::mma_sync(C, A, B, C);
  }
  wmma::store_matrix_sync(sC, C, kPitchC, wmma::mem_row_major);
}

}  // namespace fa::internal
