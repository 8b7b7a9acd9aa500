#pragma once

#include "kernels/device/attention/wmma_rows.cuh"

namespace fa::internal::v5 {

/// V4's tiles; the pitches are those of the published ladder's V5 (README, "Credits"). T is a 16-bit type.
template <class T>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = 64;  // D and Dv
  static constexpr int kBlockM = 64;
  static constexpr int kBlockN = 32;  // one key per lane
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRowsPerWarp = kBlockM / kWarps;
  static constexpr int kColumnsPerLane = kHeadDim / 32;  // of O: columns lane and lane + 32
  static constexpr int kBlocksPerMultiprocessor = 3;  // asked of the compiler: at most 80 registers a thread
  // Eight rows, 16 bytes apart in the banks: the addresses that a fragment is loaded from fill all 32 banks.
  static constexpr int kPitchQ = kHeadDim + 8;
  static constexpr int kPitchKV = kHeadDim + 8;
  static constexpr int kPitchP = kBlockN + 8;
  static constexpr int kPitchScratch = 32 + 4;  // floats
};

/// 28,160 bytes.
template <class Config>
using SharedTiles = WmmaTiles<Config>;

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

}  // namespace fa::internal::v5
