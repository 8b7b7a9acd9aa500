/// Which query tile of which head a block computes.
#pragma once

#include <cuda_runtime.h>

#include "kernels/params.hpp"

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

/// The same, group_heads heads at a time: the keys and values that running blocks read are those of one
/// group, or of two, and stay in L2.
template <int kBlockM>
__device__ inline QueryTile longest_first_in_groups(const ForwardParams& p, int group_heads) {
  const int query_tiles = (p.M + kBlockM - 1) / kBlockM;
  const int group = static_cast<int>(blockIdx.x) / (group_heads * query_tiles);
  const int block = static_cast<int>(blockIdx.x) % (group_heads * query_tiles);
  const int heads = min(group_heads, p.B * p.H - group * group_heads);  // the last group may be smaller
  const int head = group * group_heads + block % heads;
  return {(query_tiles - 1 - block / heads) * kBlockM, head / p.H, head % p.H};
}

}  // namespace fa::internal
