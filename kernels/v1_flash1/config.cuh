#pragma once

namespace fa::internal::v1 {

/// The tiles of the published ladder's V1 (README, "Credits"): 37 KB of shared memory at D = 64.
struct Config {
  static constexpr int kBlockM = 32;  // query rows of a tile
  static constexpr int kBlockN = 32;  // key rows of a tile
  static constexpr int kThreads = 128;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kKeysPerWarp = kBlockN / kWarps;               // the warps split the tile's keys
  static constexpr int kRowsPerLane = kBlockM / (32 / kKeysPerWarp);  // a lane's scores: one key, these rows
};

}  // namespace fa::internal::v1
