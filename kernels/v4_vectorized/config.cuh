#pragma once

#include <cstdint>

namespace fa::internal::v4 {

/// V3's tiles, for T in global and shared memory; scores, softmax and sums are fp32.
template <class T>
struct Config {
  using Element = T;
  using Index = int32_t;               // of rows and columns; offsets in global memory are 64-bit
  static constexpr int kHeadDim = 64;  // D and Dv
  static constexpr int kBlockM = 64;
  static constexpr int kBlockN = 32;  // one key per lane
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRowsPerWarp = kBlockM / kWarps;
  static constexpr int kColumnsPerLane = kHeadDim / 32;  // of O: columns 2 lane and 2 lane + 1
  static constexpr int kBlocksPerMultiprocessor = 3;  // asked of the compiler: at most 80 registers a thread
  // One bank further from row to row of K, so that 32 lanes that read a column of it read 32 banks.
  static constexpr int kPitchK = kHeadDim + 4 / static_cast<int>(sizeof(T));
  static constexpr int kCopyBytes = 16;    // of one load from global memory
  static constexpr int kUnrollScores = 1;  // trips of 16 bytes of features
  static constexpr int kUnrollOutput = 1;  // trips of 16 bytes of keys
};

/// 32,896 bytes in fp32, 16,512 in 16 bits. K and V take turns in one tile.
template <class Config>
struct SharedTiles {
  using T = typename Config::Element;
  alignas(16) T Q[Config::kBlockM][Config::kHeadDim];
  union {
    T K[Config::kBlockN][Config::kPitchK];
    T V[Config::kBlockN][Config::kHeadDim];
  };
  alignas(16) T P[Config::kBlockM][Config::kBlockN];
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

}  // namespace fa::internal::v4
