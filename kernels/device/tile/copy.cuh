/// Tiles from global to shared memory: element by element, or 16 bytes at a time.
#pragma once

#include "kernels/device/tile/convert.cuh"

namespace fa::internal {

/// sTile[r][d] = gRows[(first + r) * stride + d] as fp32, and zero beyond `rows` or `head_dim`, so that a
/// tail adds nothing to a product. Neighbouring threads read neighbouring features: coalesced for any stride,
/// and right for any alignment. kUnroll loads are under way at a time.
template <int kRows, int kHeadDim, int kThreads, int kUnroll = 2, class T>
__device__ void copy_rows(float (&sTile)[kRows][kHeadDim], const T* gRows, int64_t stride, int first,
                          int rows, int head_dim) {
  static_assert(kRows * kHeadDim % kThreads == 0);  // a number of trips that the compiler knows
#pragma unroll kUnroll
  for (int n = 0; n < kRows * kHeadDim / kThreads; ++n) {
    const int i = n * kThreads + static_cast<int>(threadIdx.x);
    const int r = i / kHeadDim;
    const int d = i % kHeadDim;
    const bool inside = first + r < rows && d < head_dim;
    sTile[r][d] = inside ? to_float(gRows[(first + r) * stride + d]) : 0.0f;
  }
}

/// The same without conversion, kCopyBytes a load (one element, or 16 bytes), of rows that are aligned to it
/// and kHeadDim long. Where the pitch of sTile is no multiple of 16 bytes the store is made of words.
template <int kCopyBytes, int kRows, int kHeadDim, int kThreads, class Index, class T, int kPitch>
__device__ void copy_rows_unconverted(T (&sTile)[kRows][kPitch], const T* gRows, int64_t stride, Index first,
                                      Index rows) {
  constexpr Index kElements = kCopyBytes / sizeof(T);  // of one load
  constexpr Index kLoadsPerRow = kHeadDim / kElements;
  static_assert(kElements == 1 || kCopyBytes == 16);
  static_assert(kRows * kLoadsPerRow % kThreads == 0);
#pragma unroll
  for (int n = 0; n < kRows * kLoadsPerRow / kThreads; ++n) {
    const Index i = n * kThreads + static_cast<Index>(threadIdx.x);
    const Index r = i / kLoadsPerRow;
    const Index d = i % kLoadsPerRow * kElements;
    const bool inside = first + r < rows;
    const T* from = gRows + static_cast<int64_t>(first + r) * stride + d;
    if constexpr (kElements == 1) {
      sTile[r][d] = inside ? *from : T(0.0f);
    } else {
      const uint4 x = inside ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
      if constexpr (kPitch * sizeof(T) % 16 == 0) {
        *reinterpret_cast<uint4*>(&sTile[r][d]) = x;
      } else {
        constexpr int kWord = 4 / sizeof(T);
        static_assert(kPitch % kWord == 0);
        *reinterpret_cast<uint32_t*>(&sTile[r][d]) = x.x;
        *reinterpret_cast<uint32_t*>(&sTile[r][d + kWord]) = x.y;
        *reinterpret_cast<uint32_t*>(&sTile[r][d + 2 * kWord]) = x.z;
        *reinterpret_cast<uint32_t*>(&sTile[r][d + 3 * kWord]) = x.w;
      }
    }
  }
}

}  // namespace fa::internal
