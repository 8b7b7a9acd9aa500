/// fp32 products of tiles in shared memory, summed in registers: a thread owns kR x kC numbers of the result
/// and uses each operand that it reads kR or kC times. Every read is 16 bytes.
///
/// Three forms, by the dimension that is summed over, so that no operand is ever transposed:
///   add_product_abt   C += A B^T   over the columns of both
///   add_product_atb   C += A^T B   over the rows of both
///   add_product_ab    C += A B     over A's columns and B's rows
#pragma once

#include <cuda_runtime.h>

namespace fa::internal {

/// A thread's place (y, x) in a grid of kY x kX. A warp covers 4 x 8 of it, and lanes count along x and y in
/// turn: lanes that differ in bit 0 share y, and those that differ in bit 1 share x. The data path of shared
/// memory then serves a read of 16 bytes in two passes, half a warp each, where it would take four.
template <int kY_, int kX_>
struct ThreadGrid {
  static constexpr int kY = kY_;
  static constexpr int kX = kX_;
  static constexpr int kThreads = kY * kX;
  static_assert(kY % 4 == 0 && kX % 8 == 0);

  int y, x;

  __device__ ThreadGrid() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    y = warp / (kX / 8) * 4 + (lane >> 1 & 1) + (lane >> 3 & 1) * 2;
    x = warp % (kX / 8) * 8 + (lane & 1) + (lane >> 2 & 1) * 2 + (lane >> 4) * 4;
  }

  /// Single rows or columns, dealt out in turn: row i and column j of a thread. Threads that read
  /// neighbouring rows meet no bank conflict where the pitch is four numbers more than a multiple of 32.
  __device__ int row(int i) const { return y + kY * i; }
  __device__ int column(int j) const { return x + kX * j; }

  /// Runs of four: the first row or column of a thread's run number i.
  __device__ int row_of_four(int i) const { return 4 * (y + kY * i); }
  __device__ int column_of_four(int j) const { return 4 * (x + kX * j); }
};

__device__ inline float4 load_four(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

/// C[i][j] += sum over d of A[row(i)][d] B[column(j)][d].
template <int kDepth, class Grid, int kR, int kC, int kA, int kPitchA, int kB, int kPitchB>
__device__ void add_product_abt(const Grid& at, float (&C)[kR][kC], const float (&sA)[kA][kPitchA],
                                const float (&sB)[kB][kPitchB]) {
  static_assert(kR * Grid::kY == kA && kC * Grid::kX == kB && kDepth % 8 == 0);
#pragma unroll 2
  for (int d = 0; d < kDepth; d += 4) {
    float4 b[kC];
#pragma unroll
    for (int j = 0; j < kC; ++j) b[j] = load_four(&sB[at.column(j)][d]);
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const float4 a = load_four(&sA[at.row(i)][d]);
#pragma unroll
      for (int j = 0; j < kC; ++j) C[i][j] += a.x * b[j].x;
#pragma unroll
      for (int j = 0; j < kC; ++j) C[i][j] += a.y * b[j].y;
#pragma unroll
      for (int j = 0; j < kC; ++j) C[i][j] += a.z * b[j].z;
#pragma unroll
      for (int j = 0; j < kC; ++j) C[i][j] += a.w * b[j].w;
    }
  }
}

/// C[4 i + e][4 j + f] += sum over r of A[r][row_of_four(i) + e] B[r][column_of_four(j) + f].
template <class Grid, int kR, int kC, int kDepth, int kPitchA, int kPitchB>
__device__ void add_product_atb(const Grid& at, float (&C)[kR][kC], const float (&sA)[kDepth][kPitchA],
                                const float (&sB)[kDepth][kPitchB]) {
  static_assert(kR % 4 == 0 && kC % 4 == 0);
#pragma unroll 4
  for (int r = 0; r < kDepth; ++r) {
    float4 b[kC / 4];
#pragma unroll
    for (int j = 0; j < kC / 4; ++j) b[j] = load_four(&sB[r][at.column_of_four(j)]);
#pragma unroll
    for (int i = 0; i < kR / 4; ++i) {
      const float4 four = load_four(&sA[r][at.row_of_four(i)]);
      const float a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int j = 0; j < kC / 4; ++j) {
          C[4 * i + e][4 * j] += a[e] * b[j].x;
          C[4 * i + e][4 * j + 1] += a[e] * b[j].y;
          C[4 * i + e][4 * j + 2] += a[e] * b[j].z;
          C[4 * i + e][4 * j + 3] += a[e] * b[j].w;
        }
      }
    }
  }
}

/// C[i][4 j + f] += sum over n of A[row(i)][n] B[n][column_of_four(j) + f].
template <class Grid, int kR, int kC, int kA, int kPitchA, int kDepth, int kPitchB>
__device__ void add_product_ab(const Grid& at, float (&C)[kR][kC], const float (&sA)[kA][kPitchA],
                               const float (&sB)[kDepth][kPitchB]) {
  static_assert(kR * Grid::kY == kA && kC % 4 == 0 && kDepth % 4 == 0);
#pragma unroll 2
  for (int n = 0; n < kDepth; n += 4) {
    float4 b[4][kC / 4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int j = 0; j < kC / 4; ++j) b[e][j] = load_four(&sB[n + e][at.column_of_four(j)]);
    }
#pragma unroll
    for (int i = 0; i < kR; ++i) {
      const float4 four = load_four(&sA[at.row(i)][n]);
      const float a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int j = 0; j < kC / 4; ++j) {
          C[i][4 * j] += a[e] * b[e][j].x;
          C[i][4 * j + 1] += a[e] * b[e][j].y;
          C[i][4 * j + 2] += a[e] * b[e][j].z;
          C[i][4 * j + 3] += a[e] * b[e][j].w;
        }
      }
    }
  }
}

}  // namespace fa::internal
