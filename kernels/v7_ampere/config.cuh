#pragma once

#include "kernels/params.hpp"

namespace fa::internal::v7 {

/// Tiles for rows of up to HeadDim features.
template <class T, int HeadDim, int BlockM, int BlockN, int Stages, int Warps, int BlocksPerMultiprocessor,
          int QInRegisters>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;  // holds D and Dv
  static constexpr int kBlockM = BlockM;
  static constexpr int kBlockN = BlockN;
  static constexpr int kStages =
      Stages;  // of K and of V: with one, V is copied beside Q K^T and K beside P V
  static constexpr int kQInRegisters = QInRegisters;  // feature blocks of Q that stay in registers
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kRowsPerWarp = kBlockM / kWarps;
  static constexpr int kRowBlocks = kRowsPerWarp / 16;  // of a warp, m16 each
  static constexpr int kKeyBlocks = kBlockN / 16;       // of a tile
  static constexpr int kFeatureBlocks = kHeadDim / 16;  // of a row
  static constexpr int kBlocksPerMultiprocessor = BlocksPerMultiprocessor;
};

/// The tiles of a head dimension: `Large` where its blocks fill the device, else `Small`. All of them fit the
/// smallest class of shared memory, 99 KB.
///
/// Two row blocks a warp read each of K's and V's fragments half as often from shared memory; beyond D = 128
/// O leaves no registers for that.
template <class T, int HeadDim>
struct Tiles;
template <class T>
struct Tiles<T, 32> {
  using Large = Config<T, 32, 128, 64, 2, 4, 3, 2>;
  using Small = Config<T, 32, 64, 64, 2, 4, 4, 2>;
};
template <class T>
struct Tiles<T, 64> {
  using Large = Config<T, 64, 128, 64, 2, 4, 2, 4>;
  using Small = Config<T, 64, 64, 64, 2, 4, 4, 0>;
};
template <class T>
struct Tiles<T, 96> {
  using Large = Config<T, 96, 128, 64, 2, 4, 2, 0>;
  using Small = Config<T, 96, 64, 64, 2, 4, 3, 0>;
};
template <class T>
struct Tiles<T, 128> {
  using Large = Config<T, 128, 128, 64, 2, 4, 2, 0>;
  using Small = Config<T, 128, 64, 64, 2, 4, 2, 0>;
};
template <class T>
struct Tiles<T, 192> {
  using Large = Config<T, 192, 64, 64, 1, 4, 2, 0>;
  using Small = Large;
};
template <class T>
struct Tiles<T, 256> {
  using Large = Config<T, 256, 64, 64, 1, 4, 2, 0>;
  using Small = Large;
};

/// Dynamic shared memory; every tile swizzled. Q's place is O's at the end.
template <class Config>
struct alignas(128) SharedTiles {
  using T = typename Config::Element;
  T Q[Config::kBlockM][Config::kHeadDim];
  T K[Config::kStages][Config::kBlockN][Config::kHeadDim];
  T V[Config::kStages][Config::kBlockN][Config::kHeadDim];
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

/// What the host computes for one launch.
struct Schedule {
  int head_group;    // query heads whose keys and values fit half of L2
  float scale_log2;  // |scale| log2(e), or 1 where scale = 0
  float sign;        // of scale: -1, 0 or 1
};

}  // namespace fa::internal::v7
