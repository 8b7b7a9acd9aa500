/// V0: attention unfused. Three kernels, and between them the whole score matrix in global memory:
///
///     S = scale Q K^T + mask        [B, H, M, N] in the workspace
///     P = softmax(S), row by row    in place
///     O = P V
///
/// The two products are the register-tiled product of every CUDA course: a block's tile of the result in
/// registers, slices of the two operands in shared memory.
#pragma once

#include "kernels/device/attention/mask.cuh"
#include "kernels/device/attention/online_softmax.cuh"
#include "kernels/device/tile/reduce.cuh"
#include "kernels/v0_unfused/config.cuh"

namespace fa::internal::v0 {

/// Slices of the operands, the summed dimension first: a thread reads its rows and columns as float4.
/// Four floats of padding spread the transposing stores over the banks and keep the rows 16-byte aligned.
template <class Config>
struct SharedSlices {
  alignas(16) float A[Config::kDepth][Config::kBlockM + 4];
  alignas(16) float B[Config::kDepth][Config::kBlockN + 4];
};

/// A thread's part of the result: rows first_row + i, columns first_column + j of the block's tile.
template <class Config>
struct Accumulator {
  float r[Config::kRowsPerThread][Config::kColumnsPerThread] = {};
  int first_row =
      static_cast<int>(threadIdx.x) / (Config::kBlockN / Config::kColumnsPerThread) * Config::kRowsPerThread;
  int first_column = static_cast<int>(threadIdx.x) % (Config::kBlockN / Config::kColumnsPerThread) *
                     Config::kColumnsPerThread;

  __device__ void multiply(const SharedSlices<Config>& s) {
#pragma unroll
    for (int k = 0; k < Config::kDepth; ++k) {
      float a[Config::kRowsPerThread], b[Config::kColumnsPerThread];
#pragma unroll
      for (int i = 0; i < Config::kRowsPerThread; ++i) a[i] = s.A[k][first_row + i];
#pragma unroll
      for (int j = 0; j < Config::kColumnsPerThread; ++j) b[j] = s.B[k][first_column + j];
#pragma unroll
      for (int i = 0; i < Config::kRowsPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < Config::kColumnsPerThread; ++j) r[i][j] += a[i] * b[j];
      }
    }
  }
};

/// sSlice[k][r] = gRows[first + r][depth + k]: rows of the matrix become columns of the slice.
template <class Config, int kColumns>
__device__ void copy_transposed(float (&sSlice)[Config::kDepth][kColumns], const float* gRows, int64_t stride,
                                int first, int rows, int depth, int columns) {
  for (int i = threadIdx.x; i < Config::kDepth * (kColumns - 4); i += Config::kThreads) {
    const int r = i / Config::kDepth;
    const int k = i % Config::kDepth;
    const bool inside = first + r < rows && depth + k < columns;
    sSlice[k][r] = inside ? gRows[(first + r) * stride + depth + k] : 0.0f;
  }
}

/// sSlice[k][c] = gRows[depth + k][first + c].
template <class Config, int kColumns>
__device__ void copy_straight(float (&sSlice)[Config::kDepth][kColumns], const float* gRows, int64_t stride,
                              int first, int columns, int depth, int rows) {
  for (int i = threadIdx.x; i < Config::kDepth * (kColumns - 4); i += Config::kThreads) {
    const int k = i / (kColumns - 4);
    const int c = i % (kColumns - 4);
    const bool inside = depth + k < rows && first + c < columns;
    sSlice[k][c] = inside ? gRows[(depth + k) * stride + first + c] : 0.0f;
  }
}

/// Which tile of which head a block computes: blockIdx.x counts column tiles, then row tiles, then heads.
template <class Config>
struct Tile {
  int b, h, first_row, first_column;

  __device__ Tile(const ForwardParams& p, int columns) {
    const int column_tiles = (columns + Config::kBlockN - 1) / Config::kBlockN;
    const int row_tiles = (p.M + Config::kBlockM - 1) / Config::kBlockM;
    int index = static_cast<int>(blockIdx.x);
    first_column = index % column_tiles * Config::kBlockN;
    index /= column_tiles;
    first_row = index % row_tiles * Config::kBlockM;
    index /= row_tiles;
    h = index % p.H;
    b = index / p.H;
  }
};

/// The scores of one head.
__device__ inline float* scores_of(const ForwardParams& p, int b, int h) {
  return static_cast<float*>(p.workspace) + (static_cast<int64_t>(b) * p.H + h) * p.M * p.N;  // [M, N]
}

/// S = scale Q K^T, hidden keys -infinity.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads) scores_kernel(ForwardParams p) {
  __shared__ SharedSlices<Config> s;
  const Tile<Config> tile(p, p.N);
  const float* gQ =
      static_cast<const float*>(p.q) + tile.b * p.q_stride.batch + tile.h * p.q_stride.head;  // [M, D]
  const float* gK = static_cast<const float*>(p.k) + tile.b * p.k_stride.batch +
                    tile.h / p.group * p.k_stride.head;  // [N, D]

  Accumulator<Config> S;
  for (int d = 0; d < p.D; d += Config::kDepth) {
    copy_transposed<Config>(s.A, gQ, p.q_stride.seq, tile.first_row, p.M, d, p.D);
    copy_transposed<Config>(s.B, gK, p.k_stride.seq, tile.first_column, p.N, d, p.D);
    __syncthreads();
    S.multiply(s);
    __syncthreads();
  }

  float* gS = scores_of(p, tile.b, tile.h);  // [M, N]
  const Window window = window_of(p);
#pragma unroll
  for (int i = 0; i < Config::kRowsPerThread; ++i) {
    const int row = tile.first_row + S.first_row + i;
    if (row >= p.M) break;
#pragma unroll
    for (int j = 0; j < Config::kColumnsPerThread; ++j) {
      const int key = tile.first_column + S.first_column + j;
      if (key >= p.N) break;
      gS[static_cast<int64_t>(row) * p.N + key] = window.sees(row, key) ? S.r[i][j] * p.scale : no_score();
    }
  }
}

/// P = exp(S - m) / l in place, one warp per row: three passes over the row.
template <class Config>
__global__ void __launch_bounds__(Config::kSoftmaxThreads) softmax_kernel(ForwardParams p) {
  constexpr int kWarps = Config::kSoftmaxThreads / 32;
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;  // of B * H * M
  if (row >= static_cast<int64_t>(p.B) * p.H * p.M) return;
  float* gS = static_cast<float*>(p.workspace) + row * p.N;  // [N]

  float m = no_score();
  for (int j = lane; j < p.N; j += 32) m = fmaxf(m, gS[j]);
  m = group_max(m);

  float l = 0.0f;
  for (int j = lane; j < p.N; j += 32) {
    const float e = expf(gS[j] - finite_max(m));
    gS[j] = e;
    l += e;
  }
  l = group_sum(l);

  const float normalise = inverse_sum(l);
  for (int j = lane; j < p.N; j += 32) gS[j] *= normalise;
  if (p.lse != nullptr && lane == 0) p.lse[row] = log_sum_exp(m, l);
}

/// O = P V.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads) output_kernel(ForwardParams p) {
  __shared__ SharedSlices<Config> s;
  const Tile<Config> tile(p, p.Dv);
  const float* gP = scores_of(p, tile.b, tile.h);  // [M, N]
  const float* gV = static_cast<const float*>(p.v) + tile.b * p.v_stride.batch +
                    tile.h / p.group * p.v_stride.head;  // [N, Dv]

  Accumulator<Config> O;
  for (int key = 0; key < p.N; key += Config::kDepth) {
    copy_transposed<Config>(s.A, gP, p.N, tile.first_row, p.M, key, p.N);
    copy_straight<Config>(s.B, gV, p.v_stride.seq, tile.first_column, p.Dv, key, p.N);
    __syncthreads();
    O.multiply(s);
    __syncthreads();
  }

  float* gO =
      static_cast<float*>(p.out) + tile.b * p.out_stride.batch + tile.h * p.out_stride.head;  // [M, Dv]
#pragma unroll
  for (int i = 0; i < Config::kRowsPerThread; ++i) {
    const int row = tile.first_row + O.first_row + i;
    if (row >= p.M) break;
#pragma unroll
    for (int j = 0; j < Config::kColumnsPerThread; ++j) {
      const int d = tile.first_column + O.first_column + j;
      if (d < p.Dv) gO[row * p.out_stride.seq + d] = O.r[i][j];
    }
  }
}

}  // namespace fa::internal::v0
