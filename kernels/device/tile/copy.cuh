/// Tiles from global to shared memory, element by element.
#pragma once

#include "kernels/device/tile/convert.cuh"

namespace fa::internal {

/// sTile[r][d] = gRows[(first + r) * stride + d] as fp32, and zero beyond `rows` or `head_dim`, so that a
/// tail adds nothing to a product. Neighbouring threads read neighbouring features: coalesced for any stride,
/// and right for any alignment.
template <int kRows, int kHeadDim, int kThreads, class T>
__device__ void copy_rows(float (&sTile)[kRows][kHeadDim], const T* gRows, int64_t stride, int first,
                          int rows, int head_dim) {
  for (int i = threadIdx.x; i < kRows * kHeadDim; i += kThreads) {
    const int r = i / kHeadDim;
    const int d = i % kHeadDim;
    const bool inside = first + r < rows && d < head_dim;
    sTile[r][d] = inside ? to_float(gRows[(first + r) * stride + d]) : 0.0f;
  }
}

}  // namespace fa::internal
