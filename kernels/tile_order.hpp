/// The order in which a kernel's blocks take query tiles, computed once on the host: a block finds its tile
/// with multiplications where it would divide five times before its first load.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/params.hpp"

namespace fa::internal {

/// n / value for 0 <= n < 2^31: the upper half of n * multiplier, shifted; value = 1 has multiplier 0 and
/// leaves n as it is. (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994,
/// theorem 4.2 with N = 31.)
struct Divisor {
  int32_t value;
  uint32_t multiplier;
  int32_t shift;
};

inline Divisor make_divisor(int64_t value) {
  int log2 = 0;  // rounded up
  while (int64_t{1} << log2 < value) ++log2;
  if (log2 == 0) return {1, 0, 0};
  const uint64_t power = uint64_t{1} << (31 + log2);
  const auto divisor = static_cast<uint64_t>(value);
  return {static_cast<int32_t>(value), static_cast<uint32_t>((power + divisor - 1) / divisor), log2 - 1};
}

/// Heads go in groups whose keys and values stay in L2 together: the last query tiles of a group's heads,
/// then the tiles before them, then the next group.
struct TileOrder {
  int32_t query_tiles;       // of a head
  int32_t last_group;        // its index; it may have fewer heads
  Divisor group_tiles;       // query tiles of a group
  Divisor group_heads;       // query heads of a group
  Divisor last_group_heads;  // of the last one
  Divisor H;
  Divisor heads_per_key_head;
};

/// For query tiles of block_m rows and keys and values of two-byte elements. Groups are of like size, and as
/// large as half of l2_bytes holds. reject_grid keeps the tiles below 2^31.
inline TileOrder make_tile_order(const ForwardParams& p, int block_m, int64_t l2_bytes) {
  constexpr int64_t kElementBytes = 2;
  const int64_t bytes = int64_t{p.N} * (p.D + p.Dv) * kElementBytes;  // of one key head
  const int64_t heads = int64_t{p.B} * p.H;
  const int64_t most = std::max<int64_t>(1, l2_bytes / 2 / std::max<int64_t>(1, bytes)) * p.group;
  const int64_t groups = (heads + most - 1) / most;
  const int64_t group_heads = (heads + groups - 1) / groups;
  const int64_t last_group = (heads - 1) / group_heads;
  const int64_t query_tiles = (int64_t{p.M} + block_m - 1) / block_m;
  return {.query_tiles = static_cast<int32_t>(query_tiles),
          .last_group = static_cast<int32_t>(last_group),
          .group_tiles = make_divisor(group_heads * query_tiles),
          .group_heads = make_divisor(group_heads),
          .last_group_heads = make_divisor(heads - last_group * group_heads),
          .H = make_divisor(p.H),
          .heads_per_key_head = make_divisor(p.group)};
}

}  // namespace fa::internal
