#pragma once

#include <cstdint>

namespace fa::internal::v2_backward {

/// A tile's sizes, and how the threads share the results of its products: a grid of score_y rows of threads
/// over S and dP, one of gradient_y rows over dQ, dK and dV.
struct TileShape {
  int block_m, block_n;
  int threads;
  int score_y, gradient_y;
  int blocks;  // that a multiprocessor is to hold: the limit on registers
};

/// For head dimensions up to 32, 64, 128, 256: the tiles of the smallest class of shared memory, 99 KB, and
/// of the others, 163 KB and more.
constexpr TileShape tile_shape(int head_dim, bool small) {
  if (head_dim == 32) return {64, 64, 128, 8, 16, 3};
  if (head_dim == 64) return {64, 64, 128, 8, 8, 2};
  if (head_dim == 128) return small ? TileShape{32, 32, 128, 8, 8, 1} : TileShape{64, 64, 256, 16, 16, 1};
  return small ? TileShape{16, 16, 128, 8, 4, 1} : TileShape{32, 32, 256, 16, 8, 1};
}

/// kHeadDim holds D and Dv: the next of 32, 64, 128, 256 up.
template <class T, int HeadDim, TileShape kShape>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kBlockM = kShape.block_m;
  static constexpr int kBlockN = kShape.block_n;
  static constexpr int kThreads = kShape.threads;
  static constexpr int kScoreY = kShape.score_y;
  static constexpr int kGradientY = kShape.gradient_y;
  static constexpr int kBlocksPerMultiprocessor = kShape.blocks;
  // Neighbouring rows four banks apart: a column of them is read 16 bytes a lane without conflict.
  static constexpr int kPitch = kHeadDim + 4;
  // Eight banks: lanes that store single numbers, 4 rows by 8 columns, meet no conflict either.
  static constexpr int kPitchP = kBlockN + 8;
};

/// Dynamic shared memory; everything in fp32.
template <class Config>
struct SharedTiles {
  alignas(16) float Q[Config::kBlockM][Config::kPitch];
  float dO[Config::kBlockM][Config::kPitch];
  float K[Config::kBlockN][Config::kPitch];
  float V[Config::kBlockN][Config::kPitch];
  float P[Config::kBlockM][Config::kPitchP];  // then dS in its place
  float L[Config::kBlockM];
  float Delta[Config::kBlockM];
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

template <class T, int HeadDim>
using SmallConfig = Config<T, HeadDim, tile_shape(HeadDim, true)>;
template <class T, int HeadDim>
using LargeConfig = Config<T, HeadDim, tile_shape(HeadDim, false)>;

/// Calls f with the Config of the largest tiles that fit a block's shared memory.
template <class T, int HeadDim, class F>
auto with_tiles(int shared_memory_per_block, F f) {
  if (shared_memory_per_block < kSharedBytes<LargeConfig<T, HeadDim>>) return f(SmallConfig<T, HeadDim>{});
  return f(LargeConfig<T, HeadDim>{});
}

/// What lies in the workspace.
struct Workspace {
  float* Delta;  // [B, H, M]
  float* dQ;     // [B, H, M, dq_pitch] where dQ is summed atomically: before its scale and its type
  int64_t dq_pitch;
};

}  // namespace fa::internal::v2_backward
