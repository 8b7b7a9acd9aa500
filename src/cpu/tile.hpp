/// One tile of the CPU backend: what forward.cpp plans and an instruction set's code computes.
#pragma once

#include <cstdint>

#include "kernels/params.hpp"

namespace fa::internal::cpu {

inline constexpr int kBlockM = 64;  // query rows of a tile, the vector lanes
// Key rows of a block. 32 and 128 measured the same within the noise (fp32, S2048, D64, AVX-512: 136, 139 and
// 135 GFLOP/s for 32, 64 and 128).
inline constexpr int kBlockN = 64;
// The widest vector in floats: a narrow tile's columns are a multiple of it.
inline constexpr int kMaxLanes = 16;

/// Which rows a tile computes. The query heads that share a key head are one list of M * group rows, row r
/// being query r / group of head kv_head * group + r % group: heads of a short problem fill a tile together,
/// and neighbours in a tile see nearly the same keys.
struct Tile {
  int64_t batch;
  int64_t kv_head;
  int64_t row;  // the first
  int rows;     // at most kBlockM
};

/// A thread's memory. `columns` is the tile's rows, rounded up to whole vectors.
struct Scratch {
  float* query;      // Q^T [D][columns]
  float* score;      // S^T, then P^T [kBlockN][columns]
  float* output;     // O^T [Dv][columns], not yet divided by l
  float* key_value;  // a block of K or V in fp32 [kBlockN][max(D, Dv)]; null where they are fp32 themselves
  float* row;        // one row of Q or O in fp32 [max(D, Dv)]
  float* m;          // running maximum [columns]
  float* l;          // running sum [columns]
  float* alpha;      // what the last maximum's change makes of the sums so far [columns]
  float* block_max;  // maximum of the block's scores [columns]
  float* first;      // first and last visible key of each column, from the block's start [columns]
  float* last;
};

/// The tile computation as compiled for one instruction set.
struct TileKernel {
  const char* target;  // "AVX-512"
  void (*run)(const ForwardParams&, const Tile&, Dtype dtype_in, Dtype dtype_out, const Scratch&);
};

/// In portable C++.
const TileKernel& plain_kernel();

/// The best one of those written with Highway that this machine runs; null where there is none.
const TileKernel* highway_kernel();

/// "highway 1.0.3", or null in a build without it.
const char* highway_version();

}  // namespace fa::internal::cpu
