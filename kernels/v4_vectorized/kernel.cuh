/// V4: vectorized. V3 with 16 bytes a copy, rows of K one bank apart, and 32-bit indices; over fp32, or over
/// 16-bit types that are stored as such and widened where they are multiplied.
#pragma once

#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/query_tile.cuh"
#include "kernels/device/attention/warp_rows.cuh"
#include "kernels/device/tile/copy.cuh"
#include "kernels/v4_vectorized/config.cuh"

namespace fa::internal::v4 {

template <class Config>
struct Rows : WarpRows<Config::kRowsPerWarp, Config::kColumnsPerLane> {};

/// Two neighbouring elements of a row of K. The pitch of fp32 rows is odd: their pairs are not aligned to a
/// pair.
__device__ inline float2 load_key_pair(const float* from) {
  return {from[0], from[1]};
}
template <class T>
__device__ float2 load_key_pair(const T* from) {
  return load_pair(from);
}

/// S = Q K^T for the warp's rows: a lane computes one key's column.
template <class Config>
__device__ void tile_scores(const SharedTiles<Config>& s, int row0, float (&S)[Config::kRowsPerWarp]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) S[i] = 0.0f;
  constexpr int kStep = 16 / sizeof(typename Config::Element);  // features of one load of Q
#pragma unroll Config::kUnrollScores
  for (int d = 0; d < Config::kHeadDim; d += kStep) {
    float2 k[kStep / 2];
#pragma unroll
    for (int e = 0; e < kStep / 2; ++e) k[e] = load_key_pair(&s.K[lane][d + 2 * e]);
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
      float q[kStep];
      load_16_bytes(&s.Q[row0 + i][d], q);
#pragma unroll
      for (int e = 0; e < kStep / 2; ++e) {
        S[i] += q[2 * e] * k[e].x;
        S[i] += q[2 * e + 1] * k[e].y;
      }
    }
  }
}

/// The warp's rows of P, so that every lane can read all of a row.
template <class Config>
__device__ void store_probabilities(SharedTiles<Config>& s, int row0,
                                    const float (&P)[Config::kRowsPerWarp]) {
  using T = typename Config::Element;
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) s.P[row0 + i][threadIdx.x % 32] = from_float<T>(P[i]);
  __syncwarp();
}

/// O += P V for the warp's rows: a lane takes two neighbouring columns.
template <class Config>
__device__ void tile_output(const SharedTiles<Config>& s, int row0, Rows<Config>& rows) {
  const int column = 2 * (threadIdx.x % 32);
  constexpr int kStep = 16 / sizeof(typename Config::Element);  // keys of one load of P
#pragma unroll Config::kUnrollOutput
  for (int key = 0; key < Config::kBlockN; key += kStep) {
    float2 v[kStep];
#pragma unroll
    for (int e = 0; e < kStep; ++e) v[e] = load_pair(&s.V[key + e][column]);
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
      float P[kStep];
      load_16_bytes(&s.P[row0 + i][key], P);
#pragma unroll
      for (int e = 0; e < kStep; ++e) {
        rows.O[i][0] += P[e] * v[e].x;
        rows.O[i][1] += P[e] * v[e].y;
      }
    }
  }
}

template <class Config, int kRows, int kPitch>
__device__ void copy_tile(typename Config::Element (&sTile)[kRows][kPitch],
                          const typename Config::Element* gRows, int64_t stride, typename Config::Index first,
                          typename Config::Index rows) {
  copy_rows_unconverted<Config::kCopyBytes, kRows, Config::kHeadDim, Config::kThreads>(sTile, gRows, stride,
                                                                                       first, rows);
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    forward_kernel(ForwardParams p, Dtype dtype_out) {
  using T = typename Config::Element;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);

  const auto [query0, b, h] = longest_first<Config::kBlockM>(p);
  const T* gQ = static_cast<const T*>(p.q) + b * p.q_stride.batch + h * p.q_stride.head;            // [M, D]
  const T* gK = static_cast<const T*>(p.k) + b * p.k_stride.batch + h / p.group * p.k_stride.head;  // [N, D]
  const T* gV = static_cast<const T*>(p.v) + b * p.v_stride.batch + h / p.group * p.v_stride.head;  // [N, Dv]
  const int lane = threadIdx.x % 32;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * Config::kRowsPerWarp;
  Rows<Config> rows;

  copy_tile<Config>(s.Q, gQ, p.q_stride.seq, query0, p.M);

  const BlockRange<Config::kBlockN> range(window_of(p), query0, min(query0 + Config::kBlockM, p.M) - 1);
  for (int tile = range.begin; tile < range.end; ++tile) {
    const int key0 = tile * Config::kBlockN;
    float S[Config::kRowsPerWarp];  // scores, then probabilities
    __syncthreads();                // V of the tile before has been read
    copy_tile<Config>(s.K, gK, p.k_stride.seq, key0, p.N);
    __syncthreads();
    tile_scores(s, row0, S);
    __syncthreads();  // K has been read
    copy_tile<Config>(s.V, gV, p.v_stride.seq, key0, p.N);
    if (range.is_full(tile)) {
      scale_and_mask<false>(S, p, query0 + row0, key0 + lane);
    } else {
      scale_and_mask<true>(S, p, query0 + row0, key0 + lane);
    }
    softmax_rows<PlainSoftmax>(rows, S);
    store_probabilities(s, row0, S);
    __syncthreads();
    tile_output(s, row0, rows);
  }
  write_rows(rows, p, dtype_out, b, h, query0 + row0, {2 * lane, 2 * lane + 1});
}

}  // namespace fa::internal::v4
