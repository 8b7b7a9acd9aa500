/// A tile on its way from global to shared memory, in the registers of a block's threads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/tile/convert.cuh"

namespace fa::internal {

/// Loaded as T, four features at a time, and stored as fp32. What it starts to load may arrive while the
/// block still works on what is in shared memory.
template <int kRows, int kHeadDim, int kThreads, class T>
class FetchedTile {
  static constexpr int kFoursPerRow = kHeadDim / 4;
  static constexpr int kRowsAtOnce = kThreads / kFoursPerRow;
  static constexpr int kFours = kRows / kRowsAtOnce;  // of a thread, in one column
  static_assert(kThreads % kFoursPerRow == 0 && kRows % kRowsAtOnce == 0);

  struct alignas(4 * sizeof(T)) Four {
    T x[4];
  };
  Four fours_[kFours];

  __device__ static int first_row() { return static_cast<int>(threadIdx.x) / kFoursPerRow; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kFoursPerRow * 4; }

 public:
  /// Rows [first, first + kRows) of gRows; zeros beyond `rows` and beyond `head_dim`. aligned: rows start at
  /// multiples of four elements and head_dim is one, so that one load takes four.
  __device__ void fetch(const T* gRows, int64_t stride, int first, int rows, int head_dim, bool aligned) {
    const int row = first + first_row();
    const int d = column();
    const T* from = gRows + row * stride + d;
#pragma unroll
    for (int n = 0; n < kFours; ++n, from += kRowsAtOnce * stride) {
      Four four{};
      if (row + n * kRowsAtOnce < rows) {
        if (aligned) {
          if (d < head_dim) four = *reinterpret_cast<const Four*>(from);
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (d + e < head_dim) four.x[e] = from[e];
          }
        }
      }
      fours_[n] = four;
    }
  }

  template <int kPitch>
  __device__ void store(float (&sTile)[kRows][kPitch]) const {
    static_assert(kPitch >= kHeadDim && kPitch % 4 == 0);
#pragma unroll
    for (int n = 0; n < kFours; ++n) {
      const T(&x)[4] = fours_[n].x;
      *reinterpret_cast<float4*>(&sTile[first_row() + n * kRowsAtOnce][column()]) =
          float4{to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3])};
    }
  }
};

/// Rows straight into shared memory.
template <int kHeadDim, int kThreads, class T, int kRows, int kPitch>
__device__ void load_rows(float (&sTile)[kRows][kPitch], const T* gRows, int64_t stride, int first, int rows,
                          int head_dim, bool aligned) {
  FetchedTile<kRows, kHeadDim, kThreads, T> tile;
  tile.fetch(gRows, stride, first, rows, head_dim, aligned);
  tile.store(sTile);
}

}  // namespace fa::internal
