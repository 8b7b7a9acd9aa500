/// Which query tile of which head a block computes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/tile/divide.cuh"
#include "kernels/params.hpp"
#include "kernels/tile_order.hpp"

namespace fa::internal {

struct QueryTile {
  int query0;  // its first query
  int b, h;
};

/// Heads vary fastest, and the last query tiles come first: under a causal mask they are the longest, and
/// started last they would run on when the rest of the device is idle. For a grid of query tiles x B x H
/// blocks.
template <int kBlockM>
__device__ inline QueryTile longest_first(const ForwardParams& p) {
  const int block = static_cast<int>(blockIdx.x);
  const int heads = p.B * p.H;
  const int query_tiles = (p.M + kBlockM - 1) / kBlockM;
  return {(query_tiles - 1 - block / heads) * kBlockM, block % heads / p.H, block % heads % p.H};
}

struct GroupedQueryTile {
  int query0;  // its first query
  int b, h;
  int key_head;
};

/// longest_first, some heads at a time (TileOrder): the keys and values that running blocks read are those of
/// one group, or of two.
template <int kBlockM>
__host__ __device__ inline GroupedQueryTile longest_first_in_groups(const TileOrder& order, int block) {
  const int group = divide(block, order.group_tiles);
  const int in_group = block - group * order.group_tiles.value;
  const Divisor heads = group == order.last_group ? order.last_group_heads : order.group_heads;
  const int tile = divide(in_group, heads);
  const int head = group * order.group_heads.value + in_group - tile * heads.value;
  const int b = divide(head, order.H);
  const int h = head - b * order.H.value;
  return {(order.query_tiles - 1 - tile) * kBlockM, b, h, divide(h, order.heads_per_key_head)};
}

}  // namespace fa::internal
