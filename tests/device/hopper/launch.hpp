/// The Hopper blocks of kernels/device, and V8's walk over query tiles, on a device: plain C++. Every
/// function throws std::runtime_error on a CUDA error.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.hpp"

namespace fa::test::hopper {

// ---- tma.cuh, descriptor.cuh, tensor_maps.hpp --------------------------------------------------------

/// 16-bit elements [B, heads, rows, features] that start at the memory's first.
struct Tensor {
  std::vector<uint16_t> memory;
  internal::Strides stride;
  int B, heads, rows, features;
};

/// Where a box of 64 columns starts.
struct Corner {
  int column, row, head, batch;
};

/// Rows of shared memory that load_box looks at.
inline constexpr int kShownRows = 200;

/// [kShownRows][64]: shared memory, read by box_offset, after the load of a box of box_rows rows. What the
/// load does not write is 0xffff.
std::vector<uint16_t> load_box(const Tensor& from, int box_rows, const Corner& corner);

/// The tensor's memory after the store of a box, values [box_rows][64].
std::vector<uint16_t> store_box(const Tensor& to, int box_rows, const Corner& corner,
                                const std::vector<uint16_t>& values);

// ---- mbarrier.cuh, pipeline.cuh, named_barrier.cuh ---------------------------------------------------

/// Whether try_wait sees a phase of a barrier of two arrivals ended:
///   0, 1: at first, parity 1 and parity 0
///   2, 3, 4: parity 0 after one and after two arrivals; then parity 1
///   5: parity 1 after two arrivals, of which one announced a load that has not begun
///   6, 7: parity 1 once it has ended; then parity 0
std::vector<int> phases();

inline constexpr int kReaders = 2;   // warpgroups
inline constexpr int kItemRows = 8;  // numbers of an item

/// [kReaders][items][kItemRows]: what each reader found in a ring of two stages, through which a warp sent
/// the numbers 0, 1, 2, ... Both sides are late now and then.
std::vector<uint16_t> exchange(int items);

/// The order in which 2 or 3 warpgroups came to their turns, so many each.
std::vector<int> take_turns(int warpgroups, int turns);

// ---- wgmma.cuh ---------------------------------------------------------------------------------------

inline constexpr int kProductRows = 128;  // by two warpgroups
inline constexpr int kFeatures = 160;     // of a row of Q and K: two boxes and a half

/// [kProductRows][keys]: Q K^T, both in shared memory; Q [kProductRows][kFeatures], K [keys][kFeatures].
/// keys: 64, 80, 112 or 128.
std::vector<float> scores(Dtype dtype, int keys, const std::vector<uint16_t>& q,
                          const std::vector<uint16_t>& k);

/// Keys of a tile beside values of so many features, as V8 has them.
constexpr int keys_beside(int features) {
  return features <= 128 ? 128 : features <= 192 ? 112 : 80;
}

/// [kProductRows][features]: 3 + P V, P in registers; P [kProductRows][keys], V [keys][features], where keys
/// is keys_beside(features). features: 64, 96, 128, 192 or 256.
std::vector<float> output(Dtype dtype, int features, const std::vector<uint16_t>& p,
                          const std::vector<uint16_t>& v);

// ---- V8's RoundOrder and Walk ------------------------------------------------------------------------

/// make_round_order's numbers.
struct Rounds {
  int query_tiles, groups, rounds, group_heads, last_group_heads;
};
Rounds make_rounds(const internal::ForwardParams& p, int block_m, int blocks);

struct Visit {
  int query0, b, h;
  bool operator==(const Visit&) const = default;
};

/// Query rows of the tile that V8 takes for D = Dv = head_dim, 64, 96 or 128.
int fastest_block_m(const internal::ForwardParams& p, int head_dim, int multiprocessors);

/// The query tiles of each block in the order of its walk, and at most so many a block. block_m: 128, 192
/// or 256.
std::vector<std::vector<Visit>> walk(const internal::ForwardParams& p, int block_m, int blocks, int most);

}  // namespace fa::test::hopper
