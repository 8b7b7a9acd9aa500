#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

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
template <class T, int HeadDim, int HeadDimV, int BlockM, int BlockN>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kHeadDimV = HeadDimV;
  static constexpr int kBlockM = BlockM;
  static constexpr int kBlockN = BlockN;
  static constexpr int kStages = 2;                                           // of K and of V
  static constexpr int kConsumers = BlockM / kConsumerRows;                   // warpgroups that compute
  static constexpr int kThreads = 128 * (kConsumers + 1);                     // and one that loads and stores
  static constexpr int kRowBlocks = 1;                                        // of a warp, m16 each
  static constexpr int kKeyBlocks = BlockN / 16;                              // of a tile
  static constexpr int kFeatureBlocks = HeadDimV / 16;                        // of a row of O
  static constexpr int kBoxes = (HeadDim + kBoxColumns - 1) / kBoxColumns;    // of a row of Q or K
  static constexpr int kBoxesV = (HeadDimV + kBoxColumns - 1) / kBoxColumns;  // of a row of V or O
  // Together as many as the block starts with: 168 a thread, 128 with three consumers, 96 with four.
  static_assert(kConsumers >= 2 && kConsumers <= 4);
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : kConsumers == 3 ? 160 : 112;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters ==
                (kConsumers + 1) * (65536 / kThreads / 8 * 8));

  // What ablations.cu takes back, one at a time.
  static constexpr float kRescaleThreshold = 8;  // O is rescaled where P would be above 2^8
  // S of the next key tile beside P V of this one, where a consumer's registers hold S, P and O at once and
  // 32 more; else S takes the place of P.
  static constexpr bool kOverlapsProducts = BlockN / 2 + BlockN / 4 + HeadDimV / 2 + 32 <= kConsumerRegisters;
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
/// shortest of the next; groups begin from either side in turn. A group is few rounds, so that its blocks end
/// together and its keys and values stay in L2: heads_of_group().
///
/// A head's last query tile ends with its last rows, and where its rows do not fill all tiles it is the first
/// that has fewer, by whole consumers: below a diagonal it sees the fewest keys, and the order takes it last.
struct RoundOrder {
  int32_t query_tiles;  // of a head
  int32_t rows_ahead;   // rows_ahead()
  int32_t groups;
  Divisor rounds;            // of a group
  Divisor group_heads;       // query heads of a group
  Divisor last_group_heads;  // of the last one
  Divisor H;
  Divisor heads_per_key_head;
};

/// Rows of a head's first query tile that lie before row 0: a multiple of kConsumerRows.
inline int64_t rows_ahead(int64_t M, int64_t block_m) {
  const auto whole = [&](int64_t rows) { return (M + rows - 1) / rows * rows; };
  return whole(block_m) - whole(kConsumerRows);
}

/// What a head's query tiles see of the keys, taken to rise from the first tile on in equal steps.
struct TileLengths {
  int64_t tiles;
  double first, last;
  double first_part;  // of tiles that see the same: the first one's time over another's

  double step() const { return tiles > 1 ? (last - first) / static_cast<double>(tiles - 1) : 0; }
};

/// So few heads that two blocks or more share each.
inline bool are_few(int64_t heads, int64_t blocks) {
  return 2 * heads <= blocks;
}

/// In `unit`s of keys, rounded up.
inline TileLengths tile_lengths(const ForwardParams& p, int64_t block_m, int64_t unit, int64_t blocks) {
  const auto units = [&](int64_t keys) { return static_cast<double>((keys + unit - 1) / unit); };
  const int64_t of_window = int64_t{p.window_hi} - p.window_lo + block_m;
  const int64_t widest =
      std::clamp<int64_t>(std::min<int64_t>(of_window, int64_t{p.window_hi} + p.M), 0, p.N);
  const int64_t rows_of_first = block_m - rows_ahead(p.M, block_m);
  int64_t first = std::clamp<int64_t>(p.window_hi + std::min<int64_t>(rows_of_first, p.M), 0, widest);
  // A window with a left side is the same for most tiles.
  if (of_window < p.N && 2 * (widest - first) < p.M) first = widest;
  // A tile with fewer consumers reads as many keys, and one consumer alone leaves the tensor cores idle while
  // it computes exponentials. Of many heads it takes no less than a whole one (measured).
  const int64_t tiles = (p.M + block_m - 1) / block_m;
  const double part = are_few(int64_t{p.B} * p.H, blocks) && tiles > 1
                          ? 0.55 + 0.45 * static_cast<double>(rows_of_first) / static_cast<double>(block_m)
                          : 1;
  return {tiles, units(first), units(widest), part};
}

/// The largest of the blocks' shares of a group of heads whose query tiles take `each`, but the first of a
/// head first_part of that; the others come first. first_part < 1: of few heads.
inline double largest_share_of_same(int64_t heads, int64_t tiles, int64_t blocks, double each,
                                    double first_part) {
  const auto rounded_up = [](int64_t n, int64_t of) { return static_cast<double>((n + of - 1) / of); };
  if (first_part == 1) return each * rounded_up(heads * tiles, blocks);
  const int64_t whole = heads * (tiles - 1), rounds = whole / blocks;
  // Blocks that have a whole tile less than the others get the heads' first tiles, one each, and on the way
  // back another; what is left then goes to the others.
  const int64_t short_blocks = blocks - whole % blocks;
  const double of_short =
      static_cast<double>(rounds) + first_part * std::min(rounded_up(heads, short_blocks), 2.0);
  if (short_blocks == blocks) return each * of_short;
  const double of_others = static_cast<double>(rounds + 1) + (heads > 2 * short_blocks ? first_part : 0);
  return each * std::max(of_short, of_others);
}

/// The same where a query tile takes `each` and, counted from a head's first tile, `step` for every tile up
/// to it. The longest come first: the i-th is tiles - i / heads of the head, in whole numbers.
inline double largest_share_of_rising(int64_t heads, int64_t tiles, int64_t blocks, double each,
                                      double step) {
  const int64_t rounds = heads * tiles / blocks;
  const bool has_rest = heads * tiles % blocks != 0;
  if (rounds > 8) {  // about the mean
    return static_cast<double>(heads * tiles) / static_cast<double>(blocks) *
           (each + step * static_cast<double>(tiles + 1) / 2);
  }
  const auto first_of = [&](int64_t round) {
    return each + step * static_cast<double>(tiles - round * blocks / heads);
  };
  // Of two rounds, forth and back, a block has places i and j with one sum i + j for all blocks. The largest
  // of what they are together, each rounded, is this.
  const auto of_two_from = [&](int64_t round) {
    return 2 * each + step * static_cast<double>(2 * tiles + 1 - (2 * round + 2) * blocks / heads);
  };
  double share = 0;
  for (int64_t round = 0; round + 2 <= rounds; round += 2) share += of_two_from(round);
  if (rounds % 2 == 0) return share + (has_rest ? first_of(rounds) : 0);
  const double without_rest = first_of(rounds - 1);
  return share + (has_rest ? std::max(without_rest, of_two_from(rounds - 1)) : without_rest);
}

/// The same of tiles of these lengths, where a query tile takes query_tile and key_tile for each of them.
inline double largest_share(int64_t heads, const TileLengths& keys, int64_t blocks, double query_tile,
                            double key_tile) {
  const double step = keys.step() * key_tile, first = keys.first * key_tile + query_tile;
  if (step == 0) return largest_share_of_same(heads, keys.tiles, blocks, first, keys.first_part);
  return largest_share_of_rising(heads, keys.tiles, blocks, first - step, step);
}

/// Heads of a group: as many as fill one round where all tiles are the same, else two, or up to six where all
/// groups together then end earlier; of tiles that are the same all heads, too, where they are few. A query
/// tile's beginning and end count as 128 keys.
inline int64_t heads_of_group(int64_t heads, const TileLengths& keys, int64_t blocks) {
  const bool same = keys.step() == 0;
  int64_t best = 0;
  double least = 0;
  const auto consider = [&](int64_t group_heads) {
    const int64_t whole_groups = (heads - 1) / group_heads;
    const double all = static_cast<double>(whole_groups) * largest_share(group_heads, keys, blocks, 128, 1) +
                       largest_share(heads - whole_groups * group_heads, keys, blocks, 128, 1);
    if (best != 0 && all >= 0.995 * least) return;
    best = group_heads;
    least = all;
  };
  const double tiles = static_cast<double>(keys.tiles - 1) + (same ? keys.first_part : 1);
  int64_t group_heads = 0;
  for (int rounds = same ? 1 : 2; rounds <= 6 && group_heads < heads; ++rounds) {
    const double fit = static_cast<double>(rounds * blocks) / tiles + 1e-6;  // first_part is no exact number
    group_heads = std::clamp<int64_t>(static_cast<int64_t>(fit), 1, heads);
    consider(group_heads);
  }
  if (same && group_heads < heads && are_few(heads, blocks)) consider(heads);
  return best;
}

inline RoundOrder make_round_order(const ForwardParams& p, int block_m, int blocks) {
  const int64_t heads = int64_t{p.B} * p.H;
  const TileLengths keys = tile_lengths(p, block_m, 1, blocks);
  const int64_t query_tiles = keys.tiles;
  const int64_t group_heads = heads_of_group(heads, keys, blocks);
  const int64_t groups = (heads + group_heads - 1) / group_heads;
  return {.query_tiles = static_cast<int32_t>(query_tiles),
          .rows_ahead = static_cast<int32_t>(rows_ahead(p.M, block_m)),
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
};

/// A Config and its cost.
template <class ConfigType, TileCost kCostOf = TileCost{0, 1}>
struct Choice {
  using Config = ConfigType;
  static constexpr TileCost kCost = kCostOf;
};

/// The estimated time of the whole problem by one choice of tiles, on as many multiprocessors as `blocks`.
template <class Choice>
double estimate_time(const ForwardParams& p, int64_t blocks) {
  using Config = typename Choice::Config;
  constexpr TileCost kCost = Choice::kCost;
  const TileLengths keys = tile_lengths(p, Config::kBlockM, Config::kBlockN, blocks);
  const int64_t heads = int64_t{p.B} * p.H, tiles = heads * keys.tiles;
  if (keys.step() == 0 || heads * p.M <= 1024 * blocks) {
    return largest_share(heads, keys, blocks, kCost.query_tile, kCost.key_tile);
  }
  // Of more than eight rounds of 128 query rows, blocks share what there is. The edge is fitted: a mask
  // crosses key tiles, and where query tiles are tall, consumers let some pass by.
  constexpr double kEdge = 0.5 - 0.25 * Config::kBlockM / Config::kBlockN;
  const double mean = std::min((keys.first + keys.last) / 2 + kEdge, keys.last);
  return std::max(
      static_cast<double>(tiles) / static_cast<double>(blocks) * (mean * kCost.key_tile + kCost.query_tile),
      keys.last * kCost.key_tile + kCost.query_tile);
}

/// The tiles of a head dimension: the launch takes those that it estimates to end first.
template <class... ChoiceTypes>
struct Choices {};

/// Which of them, counted from 0.
template <class... ChoiceTypes>
int fastest_choice(Choices<ChoiceTypes...>, const ForwardParams& p, int64_t blocks) {
  if constexpr (sizeof...(ChoiceTypes) == 1) {
    return 0;
  } else {
    const double times[] = {estimate_time<ChoiceTypes>(p, blocks)...};
    return static_cast<int>(std::min_element(std::begin(times), std::end(times)) - std::begin(times));
  }
}

template <class T, int HeadDim, int HeadDimV>
struct TilesOf;
template <class T>
struct TilesOf<T, 64, 64> {  // costs measured: see README
  using Type = Choices<Choice<Config<T, 64, 64, 128, 128>, TileCost{1.3, 1}>,
                       Choice<Config<T, 64, 64, 192, 128>, TileCost{1.4, 1.25}>,
                       Choice<Config<T, 64, 64, 256, 64>, TileCost{1.3, 0.88}>>;
};
template <class T>
struct TilesOf<T, 96, 96> {
  using Type = Choices<Choice<Config<T, 96, 96, 128, 128>, TileCost{1.4, 1}>,
                       Choice<Config<T, 96, 96, 192, 128>, TileCost{1.6, 1.32}>>;
};
template <class T>
struct TilesOf<T, 128, 128> {
  using Type = Choices<Choice<Config<T, 128, 128, 128, 128>, TileCost{1.4, 1}>,
                       Choice<Config<T, 128, 128, 192, 128>, TileCost{1, 1.45}>>;
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
