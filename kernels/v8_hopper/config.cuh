#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/tile/descriptor.cuh"
#include "kernels/device/tile/pipeline.cuh"
#include "kernels/params.hpp"
#include "kernels/scale.hpp"
#include "kernels/tile_order.hpp"

namespace fa::internal::v8 {

/// Query rows of a consumer: those of a wgmma.
inline constexpr int kConsumerRows = 64;

/// The features of a row of out that leave by tensor map, whole 16 bytes; the rest is stored by lanes.
__host__ __device__ inline int mapped_features(int Dv) {
  return Dv / 8 * 8;
}

/// Tiles for rows of Q and K of up to HeadDim features and rows of V and O of up to HeadDimV.
template <class T, int HeadDim, int HeadDimV, int BlockM, int BlockN, int BlocksPerMultiprocessor = 1>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kHeadDimV = HeadDimV;
  static constexpr int kBlockM = BlockM;
  static constexpr int kBlockN = BlockN;
  static constexpr int kStages = 2;                          // of K and of V
  static constexpr int kConsumers = BlockM / kConsumerRows;  // warpgroups that compute
  static constexpr int kThreads = 128 * (kConsumers + 1);    // and one that loads and stores
  static constexpr int kBlocksPerMultiprocessor = BlocksPerMultiprocessor;
  static constexpr int kRowBlocks = 1;                                        // of a warp, m16 each
  static constexpr int kKeyBlocks = BlockN / 16;                              // of a tile
  static constexpr int kFeatureBlocks = HeadDimV / 16;                        // of a row of O
  static constexpr int kBoxes = (HeadDim + kBoxColumns - 1) / kBoxColumns;    // of a row of Q or K
  static constexpr int kBoxesV = (HeadDimV + kBoxColumns - 1) / kBoxColumns;  // of a row of V or O
  // Together as many as the block starts with: 168 a thread, 128 with three consumers, 80 of two blocks.
  static constexpr bool kSharesMultiprocessor = kBlocksPerMultiprocessor == 2;
  static constexpr int kProducerRegisters = kSharesMultiprocessor || kConsumers == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kSharesMultiprocessor ? 104 : kConsumers == 3 ? 160 : 232;
  static_assert(kConsumers == 2 || (kConsumers == 3 && !kSharesMultiprocessor));

  // What ablations.cu takes back, one at a time.
  static constexpr float kRescaleThreshold = 8;  // O is rescaled where P would be above 2^8
  // S of the next key tile beside P V of this one. Of two blocks each has the other's products beside its
  // own.
  static constexpr bool kOverlapsProducts = !kSharesMultiprocessor;
  static constexpr bool kIsPersistent = true;  // a block walks over many query tiles

  // Of a box of rows of Q or O, and of K or V.
  static constexpr int kBytesM = 2 * kBlockM * kBoxColumns;
  static constexpr int kBytesN = 2 * kBlockN * kBoxColumns;
  static constexpr int kOutputBoxBytes = kConsumerRows * kBoxRowBytes;  // of a consumer's rows
  // O leaves through shared memory: a place of its own where there is room, else, of two consumers, the two
  // stages of V.
  static constexpr bool kHasOutputPlace =
      kBytesM * (kBoxes + kBoxesV) + kStages * kBytesN * (kBoxes + kBoxesV) + 1024 <= 227 * 1024;
  static_assert(kHasOutputPlace || (kConsumers == kStages && kOutputBoxBytes <= kBytesN));
};

/// Dynamic shared memory. Every tile is boxes of 64 columns.
template <class Config>
struct alignas(kSwizzleAtomBytes) SharedTiles {
  using T = typename Config::Element;
  T Q[Config::kBoxes][Config::kBlockM][kBoxColumns];
  T K[Config::kStages][Config::kBoxes][Config::kBlockN][kBoxColumns];
  T V[Config::kStages][Config::kBoxesV][Config::kBlockN][kBoxColumns];
  T O[Config::kHasOutputPlace ? Config::kConsumers : 0][Config::kBoxesV][kConsumerRows][kBoxColumns];
  PipelineBarriers<1> q;
  PipelineBarriers<Config::kStages> k, v;
  uint64_t written[Config::kConsumers];  // O, by each consumer; a phase a query tile
  uint64_t stored[Config::kConsumers];   // O, from each place
};

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

/// The order of query tiles: groups of heads, each group its longest tiles first, over as many rounds of the
/// grid as it needs. Rounds go forth and back, so that the block that gets the longest tile of one gets the
/// shortest of the next; a group is two rounds where its heads allow it, so that its blocks end together and
/// its keys and values stay in L2. Where no mask hides a key a group may be one round: all tiles are the
/// same. Four rounds or less are one group.
struct RoundOrder {
  int32_t query_tiles;  // of a head
  int32_t groups;
  Divisor rounds;            // of a group
  Divisor group_heads;       // query heads of a group
  Divisor last_group_heads;  // of the last one
  Divisor H;
  Divisor heads_per_key_head;
};

/// Heads of a group: as many as fill the fewest rounds, or up to six where those have fewer places without a
/// tile.
inline int64_t heads_of_group(int64_t heads, int64_t query_tiles, int64_t blocks, int fewest_rounds) {
  if (heads * query_tiles <= 4 * blocks) return heads;
  int64_t best = 1;
  double best_use = 0;
  for (int rounds = fewest_rounds; rounds <= 6; ++rounds) {
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
  const int64_t group_heads = heads_of_group(heads, query_tiles, blocks, sees_all_keys(p) ? 1 : 2);
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

/// What a block's work takes: of a query tile whatever its keys, and of each key tile, in any one unit.
struct TileCost {
  double query_tile, key_tile;
  double key_tile_alone;    // where no second block shares the multiprocessor
  bool takes_masks = true;  // else it is for problems where no mask hides a key
};

/// A Config and its cost.
template <class ConfigType, TileCost kCostOf = TileCost{0, 1, 1}>
struct Choice {
  using Config = ConfigType;
  static constexpr TileCost kCost = kCostOf;
};

/// The tiles of a head dimension: the launch takes those that it estimates to end first.
template <class... ChoiceTypes>
struct Choices {};

template <class T, int HeadDim, int HeadDimV>
struct TilesOf;
template <class T>
struct TilesOf<T, 64, 64> {  // costs measured: see README
  using Type = Choices<Choice<Config<T, 64, 64, 192, 128>, TileCost{1.5, 1.24, 1.24}>,
                       Choice<Config<T, 64, 64, 128, 128>, TileCost{1.4, 1, 1}>,
                       Choice<Config<T, 64, 64, 128, 64, 2>, TileCost{1.6, 1, 0.62}>>;
};
template <class T>
struct TilesOf<T, 96, 96> {
  using Type = Choices<Choice<Config<T, 96, 96, 128, 128>>>;
};
template <class T>
struct TilesOf<T, 128, 128> {
  using Type = Choices<Choice<Config<T, 128, 128, 128, 128>, TileCost{1.4, 1, 1}>,
                       Choice<Config<T, 128, 128, 192, 80>, TileCost{1.9, 0.89, 0.89, false}>>;
};
template <class T>
struct TilesOf<T, 192, 128> {
  using Type = Choices<Choice<Config<T, 192, 128, 128, 112>>>;
};
template <class T>
struct TilesOf<T, 192, 192> {
  using Type = Choices<Choice<Config<T, 192, 192, 128, 112>>>;
};
template <class T>
struct TilesOf<T, 256, 256> {
  using Type = Choices<Choice<Config<T, 256, 256, 128, 80>>>;
};
template <class T, int HeadDim, int HeadDimV>
using Tiles = typename TilesOf<T, HeadDim, HeadDimV>::Type;

}  // namespace fa::internal::v8
