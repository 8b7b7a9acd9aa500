/// V3: warp-local. V2's loop, with the rows' state in registers: a warp owns eight query rows, a lane one
/// key's scores of all of them and two columns of O. m and l are the same in every lane, so that no lane asks
/// another for them. What is left in shared memory is what lanes exchange: Q, K, V and P.
#pragma once

#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/query_tile.cuh"
#include "kernels/device/attention/warp_rows.cuh"
#include "kernels/device/tile/copy.cuh"
#include "kernels/v3_warp_local/config.cuh"

namespace fa::internal::v3 {

template <class Config>
struct Rows : WarpRows<Config::kRowsPerWarp, Config::kColumnsPerLane> {};

/// S = Q K^T for the warp's rows: a lane computes one key's column.
template <class Config>
__device__ void tile_scores(const SharedTiles<Config>& s, int row0, float (&S)[Config::kRowsPerWarp]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) S[i] = 0.0f;
#pragma unroll Config::kUnrollScores
  for (int d = 0; d < Config::kHeadDim; d += 4) {
    float k[4];
    load_16_bytes(&s.KV[lane][d], k);
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
      float q[4];
      load_16_bytes(&s.Q[row0 + i][d], q);
#pragma unroll
      for (int e = 0; e < 4; ++e) S[i] += q[e] * k[e];
    }
  }
}

/// The warp's rows of P, so that every lane can read all of a row.
template <class Config>
__device__ void store_probabilities(SharedTiles<Config>& s, int row0,
                                    const float (&P)[Config::kRowsPerWarp]) {
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) s.P[row0 + i][threadIdx.x % 32] = P[i];
  __syncwarp();
}

/// O += P V for the warp's rows: a lane takes two neighbouring columns.
template <class Config>
__device__ void tile_output(const SharedTiles<Config>& s, int row0, Rows<Config>& rows) {
  const int column = 2 * (threadIdx.x % 32);
#pragma unroll Config::kUnrollOutput
  for (int key = 0; key < Config::kBlockN; key += 4) {
    float2 v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = load_pair(&s.KV[key + e][column]);
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
      float P[4];
      load_16_bytes(&s.P[row0 + i][key], P);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        rows.O[i][0] += P[e] * v[e].x;
        rows.O[i][1] += P[e] * v[e].y;
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    forward_kernel(ForwardParams p, Dtype dtype_out) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);

  const auto [query0, b, h] = longest_first<Config::kBlockM>(p);
  const auto* gQ = static_cast<const float*>(p.q) + b * p.q_stride.batch + h * p.q_stride.head;  // [M, D]
  const auto* gK =
      static_cast<const float*>(p.k) + b * p.k_stride.batch + h / p.group * p.k_stride.head;  // [N, D]
  const auto* gV =
      static_cast<const float*>(p.v) + b * p.v_stride.batch + h / p.group * p.v_stride.head;  // [N, Dv]
  const int lane = threadIdx.x % 32;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * Config::kRowsPerWarp;
  Rows<Config> rows;

  copy_rows<Config::kBlockM, Config::kHeadDim, Config::kThreads>(s.Q, gQ, p.q_stride.seq, query0, p.M, p.D);

  const BlockRange<Config::kBlockN> range(window_of(p), query0, min(query0 + Config::kBlockM, p.M) - 1);
  for (int tile = range.begin; tile < range.end; ++tile) {
    const int key0 = tile * Config::kBlockN;
    float S[Config::kRowsPerWarp];  // scores, then probabilities
    __syncthreads();                // V of the tile before has been read
    copy_rows<Config::kBlockN, Config::kHeadDim, Config::kThreads>(s.KV, gK, p.k_stride.seq, key0, p.N, p.D);
    __syncthreads();
    tile_scores(s, row0, S);
    __syncthreads();  // K has been read
    copy_rows<Config::kBlockN, Config::kHeadDim, Config::kThreads>(s.KV, gV, p.v_stride.seq, key0, p.N, p.Dv);
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

}  // namespace fa::internal::v3
