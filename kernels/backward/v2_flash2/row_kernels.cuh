/// What backward does once a query row, before and after its main kernel: a warp takes a row.
#pragma once

#include "kernels/backward/v2_flash2/config.cuh"
#include "kernels/device/tile/convert.cuh"
#include "kernels/device/tile/reduce.cuh"

namespace fa::internal::v2_backward {

inline constexpr int kRowThreads = 256;
inline constexpr int kRowsPerBlock = kRowThreads / 32;

/// Which of the B H M query rows the warp takes.
struct QueryRow {
  int64_t index;  // in [B, H, M]
  int b, h, query;

  __device__ explicit QueryRow(const BackwardParams& p)
      : index(static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32) {
    const int64_t head = index / p.M;
    query = static_cast<int>(index - head * p.M);
    b = static_cast<int>(head / p.H);
    h = static_cast<int>(head - static_cast<int64_t>(b) * p.H);
  }

  __device__ bool exists(const BackwardParams& p) const { return b < p.B; }

  __device__ int64_t offset(const Strides& stride) const {
    return b * stride.batch + h * stride.head + query * stride.seq;
  }
};

/// Delta = rowsum(dO o O), and the zeros that dQ's sums start from.
template <class T>
__global__ void __launch_bounds__(kRowThreads) delta_kernel(BackwardParams p, Workspace workspace) {
  const QueryRow row(p);
  if (!row.exists(p)) return;
  const int lane = threadIdx.x % 32;
  const T* gO = static_cast<const T*>(p.out) + row.offset(p.out_stride);     // [Dv]
  const T* gdO = static_cast<const T*>(p.dout) + row.offset(p.dout_stride);  // [Dv]
  float sum = 0.0f;
  for (int d = lane; d < p.Dv; d += 32) sum += to_float(gO[d]) * to_float(gdO[d]);
  sum = group_sum(sum);
  if (lane == 0) workspace.Delta[row.index] = sum;
  if (!p.deterministic) {
    float* gdQ = workspace.dQ + row.index * workspace.dq_pitch;  // [dq_pitch]
    for (int d = lane; d < workspace.dq_pitch; d += 32) gdQ[d] = 0.0f;
  }
}

/// dQ = scale times what has been summed, in dq's type and strides.
static __global__ void __launch_bounds__(kRowThreads)
    scale_dq_kernel(BackwardParams p, Workspace workspace, Dtype dtype_gradient) {
  const QueryRow row(p);
  if (!row.exists(p)) return;
  const float* gdQ = workspace.dQ + row.index * workspace.dq_pitch;  // [dq_pitch]
  for (int d = threadIdx.x % 32; d < p.D; d += 32) {
    store_as(dtype_gradient, p.dq, row.offset(p.dq_stride) + d, p.scale * gdQ[d]);
  }
}

}  // namespace fa::internal::v2_backward
