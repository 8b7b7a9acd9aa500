#pragma once

namespace fa::internal::v3 {

/// The tiles of the published ladder's V3 (README, "Credits"): 64 x 32 at D = 64.
struct Config {
  static constexpr int kHeadDim = 64;  // D and Dv
  static constexpr int kBlockM = 64;
  static constexpr int kBlockN = 32;  // one key per lane
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRowsPerWarp = kBlockM / kWarps;
  static constexpr int kColumnsPerLane = kHeadDim / 32;  // of O: columns 2 lane and 2 lane + 1
  static constexpr int kBlocksPerMultiprocessor = 3;  // asked of the compiler: at most 80 registers a thread
  static constexpr int kUnrollScores = 1;             // trips of 16 bytes of features
  static constexpr int kUnrollOutput = 1;             // trips of 16 bytes of keys
};

/// 32,768 bytes. K and V take turns in one tile.
template <class Config>
struct SharedTiles {
  float Q[Config::kBlockM][Config::kHeadDim];
  float KV[Config::kBlockN][Config::kHeadDim];
  float P[Config::kBlockM][Config::kBlockN];
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

}  // namespace fa::internal::v3
