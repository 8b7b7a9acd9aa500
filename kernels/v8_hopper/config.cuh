#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/tile/descriptor.cuh"
#include "kernels/device/tile/pipeline.cuh"
#include "kernels/params.hpp"
#include "kernels/scale.hpp"
#include "kernels/tile_order.hpp"

namespace fa::internal::v8 {

/// Tiles for rows of Q and K of up to HeadDim features and rows of V and O of up to HeadDimV.
template <class T, int HeadDim, int HeadDimV, int BlockM, int BlockN>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kHeadDimV = HeadDimV;
  static constexpr int kBlockM = BlockM;
  static constexpr int kBlockN = BlockN;
  static constexpr int kStages = 2;                        // of K and of V
  static constexpr int kConsumers = BlockM / 64;           // warpgroups that compute 64 query rows each
  static constexpr int kThreads = 128 * (kConsumers + 1);  // and one that copies
  static constexpr int kRowBlocks = 1;                     // of a warp, m16 each
  static constexpr int kKeyBlocks = BlockN / 16;           // of a tile
  static constexpr int kFeatureBlocks = HeadDimV / 16;     // of a row of O
  static constexpr int kBoxes = (HeadDim + kBoxColumns - 1) / kBoxColumns;    // of a row of Q or K
  static constexpr int kBoxesV = (HeadDimV + kBoxColumns - 1) / kBoxColumns;  // of a row of V or O
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;

  // What ablations.cu takes back, one at a time.
  static constexpr float kRescaleThreshold = 8;    // O is rescaled where P would be above 2^8
  static constexpr bool kOverlapsProducts = true;  // S of the next key tile beside P V of this one
  static constexpr bool kIsPersistent = true;      // a block walks over many query tiles

  // Of a box of rows of Q or O, and of K or V.
  static constexpr int kBytesM = 2 * kBlockM * kBoxColumns;
  static constexpr int kBytesN = 2 * kBlockN * kBoxColumns;
  // Where there is room for O beside the rest, it leaves through shared memory; else from registers.
  static constexpr bool kStagesOutput =
      kBytesM * (kBoxes + kBoxesV) + kStages * kBytesN * (kBoxes + kBoxesV) + 1024 <= 227 * 1024;
};

/// Dynamic shared memory. Every tile is boxes of 64 columns.
template <class Config>
struct alignas(kSwizzleAtomBytes) SharedTiles {
  using T = typename Config::Element;
  T Q[Config::kBoxes][Config::kBlockM][kBoxColumns];
  T K[Config::kStages][Config::kBoxes][Config::kBlockN][kBoxColumns];
  T V[Config::kStages][Config::kBoxesV][Config::kBlockN][kBoxColumns];
  T O[Config::kStagesOutput ? Config::kBoxesV : 0][Config::kBlockM][kBoxColumns];
  PipelineBarriers<1> q;
  PipelineBarriers<Config::kStages> k, v;
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

/// The order of query tiles: groups of heads, each group its longest tiles first, over as many rounds of the
/// grid as it needs. Rounds go forth and back, so that the block that gets the longest tile of one gets the
/// shortest of the next; a group is two rounds where its heads allow it, so that its blocks end together and
/// its keys and values stay in L2. Four rounds or less are one group.
struct RoundOrder {
  int32_t query_tiles;  // of a head
  int32_t groups;
  Divisor rounds;            // of a group
  Divisor group_heads;       // query heads of a group
  Divisor last_group_heads;  // of the last one
  Divisor H;
  Divisor heads_per_key_head;
};

/// Heads of a group: as many as fill two rounds, or up to six where those have fewer places without a tile.
inline int64_t heads_of_group(int64_t heads, int64_t query_tiles, int64_t blocks) {
  if (heads * query_tiles <= 4 * blocks) return heads;
  int64_t best = 1;
  double best_use = 0;
  for (int rounds = 2; rounds <= 6; ++rounds) {
    const int64_t group_heads = std::clamp<int64_t>(rounds * blocks / query_tiles, 1, heads);
    const int64_t tiles = group_heads * query_tiles;
    const double use =
        static_cast<double>(tiles) / static_cast<double>((tiles + blocks - 1) / blocks * blocks);
    if (use > best_use + 0.02) {
      best = group_heads;
      best_use = use;
    }
  }
  return best;
}

inline RoundOrder make_round_order(const ForwardParams& p, int block_m, int blocks) {
  const int64_t heads = int64_t{p.B} * p.H;
  const int64_t query_tiles = (int64_t{p.M} + block_m - 1) / block_m;
  const int64_t group_heads = heads_of_group(heads, query_tiles, blocks);
  const int64_t groups = (heads + group_heads - 1) / group_heads;
  return {.query_tiles = static_cast<int32_t>(query_tiles),
          .groups = static_cast<int32_t>(groups),
          .rounds = make_divisor((group_heads * query_tiles + blocks - 1) / blocks),
          .group_heads = make_divisor(group_heads),
          .last_group_heads = make_divisor(heads - (groups - 1) * group_heads),
          .H = make_divisor(p.H),
          .heads_per_key_head = make_divisor(p.group)};
}

/// What the host computes for one launch.
struct Schedule {
  RoundOrder order;
  Scale scale;
};

/// The tiles of a head dimension: two, of which the launch takes those that it estimates to end first, or
/// one. kLargeCost: time of a key tile of Large, where one of Small takes 1.
template <class T, int HeadDim, int HeadDimV>
struct Tiles;
template <class OneConfig>
struct OneTile {
  using Large = OneConfig;
  using Small = OneConfig;
};
template <class T>
struct Tiles<T, 64, 64> {
  using Large = Config<T, 64, 64, 192, 128>;
  using Small = Config<T, 64, 64, 128, 128>;
  static constexpr double kLargeCost = 1.25;  // measured: see README
};
template <class T>
struct Tiles<T, 96, 96> : OneTile<Config<T, 96, 96, 128, 128>> {};
template <class T>
struct Tiles<T, 128, 128> : OneTile<Config<T, 128, 128, 128, 128>> {};
template <class T>
struct Tiles<T, 192, 128> : OneTile<Config<T, 192, 128, 128, 112>> {};
template <class T>
struct Tiles<T, 192, 192> : OneTile<Config<T, 192, 192, 128, 112>> {};
template <class T>
struct Tiles<T, 256, 256> : OneTile<Config<T, 256, 256, 128, 80>> {};

}  // namespace fa::internal::v8
