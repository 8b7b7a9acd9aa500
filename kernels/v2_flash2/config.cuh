#pragma once

namespace fa::internal::v2 {

/// kHeadDim holds D and Dv: the next of 32, 64, 128, 256 up. Fewer query rows where rows are longer, so that
/// the tiles fit the smallest class of shared memory, 99 KB. 64 x 32 at D = 64 are the tiles of the published
/// ladder's V2 (README, "Credits").
template <class T, int HeadDim>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kBlockM = HeadDim <= 64 ? 64 : HeadDim == 128 ? 32 : 16;
  static constexpr int kBlockN = 32;  // one key per lane
  static constexpr int kThreads = 128;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRowsPerWarp = kBlockM / kWarps;  // the warps split the query rows
  static constexpr int kColumnsPerLane = kHeadDim / 32;  // of O: columns lane, lane + 32, ...
  // Loads under way at a time in a copy: of 1, 2, 4 and 8 the fastest on an H200 at D32, D64 and D128.
  static constexpr int kCopyUnroll = HeadDim == 32 ? 2 : 8;
};

/// Dynamic shared memory.
template <class Config>
struct SharedTiles {
  float Q[Config::kBlockM][Config::kHeadDim];
  float K[Config::kBlockN][Config::kHeadDim];
  float V[Config::kBlockN][Config::kHeadDim];
  float O[Config::kBlockM][Config::kHeadDim];  // not normalised
  float P[Config::kBlockM][Config::kBlockN];   // scores, then probabilities
  float m[Config::kBlockM];
  float l[Config::kBlockM];
  float rescale[Config::kBlockM];  // e^(m_old - m_new)
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

}  // namespace fa::internal::v2
