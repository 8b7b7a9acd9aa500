/// The products of a warp's rows (warp_rows.cuh) on tensor cores (introduced by V5). Which lane holds which
/// element of a fragment WMMA does not say, so that a result passes through shared memory to reach the lane
/// that owns its key or its column.
#pragma once

#include "kernels/device/tile/convert.cuh"
#include "kernels/device/tile/wmma.cuh"

namespace fa::internal {

/// Dynamic shared memory. K and V take turns in one tile.
template <class Config>
struct WmmaTiles {
  using T = typename Config::Element;
  alignas(32) T Q[Config::kBlockM][Config::kPitchQ];
  alignas(32) T KV[Config::kBlockN][Config::kPitchKV];
  alignas(32) T P[Config::kBlockM][Config::kPitchP];
  // Results of a product, by warp.
  alignas(32) float scratch[Config::kWarps][Config::kRowsPerWarp][Config::kPitchScratch];
};

/// S = Q K^T for the warp's rows, [8, 64] x [64, 32]: a lane gets one key's column.
template <class Config>
__device__ void tile_scores(WmmaTiles<Config>& s, int row0, float (&S)[Config::kRowsPerWarp]) {
  auto& scratch = s.scratch[threadIdx.x / 32];
  multiply_8x32<Config::kHeadDim, nvcuda::wmma::col_major, Config::kPitchQ, Config::kPitchKV,
                Config::kPitchScratch>(s.Q[row0], s.KV[0], scratch[0]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) S[i] = scratch[i][threadIdx.x % 32];
  __syncwarp();  // the scratch may be written again
}

/// The warp's rows of P, as the left operand of the second product.
template <class Config>
__device__ void store_probabilities(WmmaTiles<Config>& s, int row0, const float (&P)[Config::kRowsPerWarp]) {
  using T = typename Config::Element;
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) s.P[row0 + i][threadIdx.x % 32] = from_float<T>(P[i]);
  __syncwarp();
}

/// O += P V for the warp's rows, [8, 32] x [32, 32] for each half of the columns: a lane takes one of each.
template <class Config, class Rows>
__device__ void tile_output(WmmaTiles<Config>& s, int row0, Rows& rows) {
  auto& scratch = s.scratch[threadIdx.x / 32];
#pragma unroll
  for (int c = 0; c < Config::kColumnsPerLane; ++c) {
    multiply_8x32<Config::kBlockN, nvcuda::wmma::row_major, Config::kPitchP, Config::kPitchKV,
                  Config::kPitchScratch>(s.P[row0], &s.KV[0][32 * c], scratch[0]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) rows.O[i][c] += scratch[i][threadIdx.x % 32];
    __syncwarp();  // the scratch may be written again
  }
}

}  // namespace fa::internal
