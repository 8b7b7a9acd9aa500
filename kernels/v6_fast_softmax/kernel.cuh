/// V6: fast softmax. V5 with another softmax (config.cuh): e^x by the special-function unit, and reductions
/// by XOR butterfly.
#pragma once

#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/query_tile.cuh"
#include "kernels/device/attention/warp_rows.cuh"
#include "kernels/device/attention/wmma_rows.cuh"
#include "kernels/device/tile/copy.cuh"
#include "kernels/v6_fast_softmax/config.cuh"

namespace fa::internal::v6 {

template <class Config>
struct Rows : WarpRows<Config::kRowsPerWarp, Config::kColumnsPerLane> {};

template <class Config, int kRows, int kPitch>
__device__ void copy_tile(typename Config::Element (&sTile)[kRows][kPitch],
                          const typename Config::Element* gRows, int64_t stride, int first, int rows) {
  copy_rows_unconverted<16, kRows, Config::kHeadDim, Config::kThreads>(sTile, gRows, stride, first, rows);
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    forward_kernel(ForwardParams p, Dtype dtype_out) {
  using T = typename Config::Element;
  extern __shared__ __align__(32) unsigned char shared_bytes[];
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
    copy_tile<Config>(s.KV, gK, p.k_stride.seq, key0, p.N);
    __syncthreads();
    tile_scores(s, row0, S);
    __syncthreads();  // K has been read
    copy_tile<Config>(s.KV, gV, p.v_stride.seq, key0, p.N);
    if (range.is_full(tile)) {
      scale_and_mask<false>(S, p, query0 + row0, key0 + lane);
    } else {
      scale_and_mask<true>(S, p, query0 + row0, key0 + lane);
    }
    softmax_rows<typename Config::Softmax>(rows, S);
    store_probabilities(s, row0, S);
    __syncthreads();
    tile_output(s, row0, rows);
  }
  write_rows(rows, p, dtype_out, b, h, query0 + row0, {lane, lane + 32});
}

}  // namespace fa::internal::v6
