#pragma once

#include "kernels/device/tile/swizzle.cuh"
#include "kernels/params.hpp"
#include "kernels/scale.hpp"
#include "kernels/tile_order.hpp"

namespace fa::internal::v7 {

/// Tiles for rows of up to HeadDim features.
template <class T, int HeadDim, int BlockM, int BlockN, int Stages, int Warps, int BlocksPerMultiprocessor,
          int QInRegisters>
struct Config {
  using Element = T;
  using Layout = Swizzle<HeadDim>;          // of rows of Q, K and V
  static constexpr int kHeadDim = HeadDim;  // elements of a row's place in shared memory
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
  static constexpr int kFeatureBlocks = kHeadDim / 16;  // of a row; D and Dv are up to 16 times as many
  static constexpr int kBlocksPerMultiprocessor = BlocksPerMultiprocessor;
  static constexpr float kRescaleThreshold = 8;  // O is rescaled where P would be above 2^8
  static constexpr bool kInPieces = false;       // rows of q, k and v are read 16 bytes at a time
};

/// Tiles whose products end after Features of a row's features, and never read its places for more.
template <class Base, int Features>
struct Narrower : Base {
  static_assert(Features % 16 == 0 && Features < Base::kHeadDim);
  static constexpr int kFeatureBlocks = Features / 16;
};

/// For rows that are not aligned to 16 bytes, and for D and Dv that are no multiples of 8: read in pieces of
/// 8 or 4 bytes.
template <class Base>
struct InPieces : Base {
  static constexpr bool kInPieces = true;
};

/// The tiles of a head dimension: `Large` where its blocks fill the device, else `Small`. All of them fit the
/// smallest class of shared memory, 99 KB. candidates.cu has what they were chosen from.
///
/// Two row blocks a warp read each of K's and V's fragments half as often from shared memory; beyond D = 128
/// O leaves no registers for that.
template <class T, int HeadDim>
struct Tiles;
template <class T>
struct Tiles<T, 32> {
  using Large = Config<T, 32, 128, 64, 2, 4, 3, 2>;  // measured: see README
  using Small = Config<T, 32, 64, 64, 2, 4, 4, 2>;
};
template <class T>
struct Tiles<T, 64> {
  using Large = Config<T, 64, 128, 64, 2, 4, 2, 4>;  // measured: see README
  using Small = Config<T, 64, 64, 64, 2, 4, 4, 0>;
};
template <class T>
struct Tiles<T, 96> {
  using Large = Config<T, 96, 128, 64, 2, 4, 2, 0>;  // measured: see README
  using Small = Config<T, 96, 64, 64, 2, 4, 3, 0>;
};
template <class T>
struct Tiles<T, 128> {
  using Large = Config<T, 128, 128, 64, 2, 4, 2, 0>;  // measured: see README
  using Small = Config<T, 128, 64, 64, 2, 4, 2, 0>;
};
// Swizzled rows have a multiple of 32 places.
template <class T>
struct Tiles<T, 80> {
  using Large = Narrower<Config<T, 96, 128, 64, 2, 4, 2, 1>, 80>;  // measured: see README
  using Small = Narrower<typename Tiles<T, 96>::Small, 80>;
};
template <class T>
struct Tiles<T, 112> {
  using Large = Narrower<Config<T, 128, 128, 64, 2, 4, 2, 1>, 112>;  // measured: see README
  using Small = Narrower<typename Tiles<T, 128>::Small, 112>;
};
template <class T>
struct Tiles<T, 192> {
  using Large = Config<T, 192, 64, 64, 1, 4, 2, 0>;  // measured: see README
  using Small = Large;
};
template <class T>
struct Tiles<T, 256> {
  using Large = Config<T, 256, 64, 64, 1, 4, 2, 0>;  // measured: see README
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

/// Bytes of a copy where rows of q, k and v are aligned to it, and D and Dv are multiples of its elements.
inline constexpr int kWholeChunk = 16;

/// What the host computes for one launch.
struct Schedule {
  TileOrder order;
  Scale scale;
  Divisor chunks, chunks_v;  // whole ones of 16 bytes, of a row of q and k and of one of v
  int copy_bytes;            // of one copy from q, k or v: kWholeChunk, or 8 or 4 of a Config in pieces
};

}  // namespace fa::internal::v7
