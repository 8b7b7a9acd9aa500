/// The mask: which keys a query row sees. Row i sees keys j with i + window_lo <= j <= i + window_hi.
#pragma once

#include <cuda_runtime.h>

#include "kernels/params.hpp"

namespace fa::internal {

struct Window {
  int lo;  // window_lo
  int hi;  // window_hi
  int N;

  __device__ bool sees(int row, int key) const { return key < N && key >= row + lo && key <= row + hi; }

  /// First key that a row sees, or one beyond the last key where it sees none.
  __device__ int first_key(int row) const { return max(0, row + lo); }

  /// Last key that a row sees; below first_key where it sees none.
  __device__ int last_key(int row) const { return min(N - 1, row + hi); }
};

__device__ inline Window window_of(const ForwardParams& p) {
  return {p.window_lo, p.window_hi, p.N};
}

}  // namespace fa::internal
