/// The three cases of a key tile: skipped, full, or crossed by the mask's edge.
#pragma once

#include "kernels/device/attention/mask.cuh"

namespace fa::internal {

/// The key tiles that rows [first_row, last_row] visit, and whether each is full for all of them.
template <int kBlockN>
struct BlockRange {
  int begin;                          // first tile that some row sees
  int end;                            // one beyond the last; begin >= end: no row sees any key
  int full_first_key, full_last_key;  // every row sees every key in between

  __device__ BlockRange(const Window& window, int first_row, int last_row) {
    const int first_key = window.first_key(first_row);
    const int last_key = window.last_key(last_row);
    begin = first_key / kBlockN;
    end = last_key < first_key ? begin : last_key / kBlockN + 1;
    full_first_key = window.first_key(last_row);
    full_last_key = window.last_key(first_row);
  }

  /// Some row may see some key of the tile.
  __device__ bool visits(int tile) const { return tile >= begin && tile < end; }

  /// Every row sees every key of the tile, and the tile lies inside N: no element needs a test.
  __device__ bool is_full(int tile) const {
    return tile * kBlockN >= full_first_key && (tile + 1) * kBlockN - 1 <= full_last_key;
  }
};

}  // namespace fa::internal
