/// BlockRange seen from a key tile: which query tiles it visits.
#pragma once

#include "kernels/device/attention/mask.cuh"

namespace fa::internal {

/// The tiles of kBlockM queries that see some of the keys [key0, key0 + kBlockN), and whether each is full.
template <int kBlockM, int kBlockN>
struct QueryRange {
  int M;
  int begin;                          // first tile that sees some key
  int end;                            // one beyond the last; begin >= end: no row sees any of the keys
  int full_first_row, full_last_row;  // every row in between sees every key
  bool inside;                        // no key lies beyond N

  /// Row i sees key j where j - hi <= i <= j - lo.
  __device__ QueryRange(const Window& window, int rows, int key0) : M(rows) {
    const int last_key = min(key0 + kBlockN, window.N) - 1;
    const int first_row = max(0, key0 - window.hi);
    const int last_row = min(M - 1, last_key - window.lo);
    begin = first_row / kBlockM;
    end = last_row < first_row ? begin : last_row / kBlockM + 1;
    full_first_row = last_key - window.hi;
    full_last_row = key0 - window.lo;
    inside = key0 + kBlockN <= window.N;
  }

  /// Every row of the tile sees every key: no element needs a test. Rows beyond M do not count.
  __device__ bool is_full(int tile) const {
    const int last_row = min((tile + 1) * kBlockM, M) - 1;
    return inside && tile * kBlockM >= full_first_row && last_row <= full_last_row;
  }
};

}  // namespace fa::internal
