/// One tile of the CPU backend: what forward.cpp and backward.cpp plan and an instruction set's code
/// computes.
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

/// A tile of the backward pass: up to kBlockM rows whose gradients it computes, the vector lanes, against all
/// rows of the other kind, kBlockN at a time. Queries are numbered as in Tile.
struct BackwardTile {
  int64_t batch;
  int64_t kv_head;
  int64_t row;         // the first: a query row for dQ, a key for dK and dV
  int rows;            // at most kBlockM
  const float* delta;  // rowsum(dO o O) [B, H, M]
};

/// A thread's memory for the backward pass. "Lane" rows are the tile's, transposed; "block" rows are those it
/// is held against. For dQ the lanes are queries and the block's rows keys; for dK and dV the other way
/// round.
struct BackwardScratch {
  float* lane_qk;      // Q^T or K^T of the tile [D][columns]
  float* lane_ov;      // dO^T or V^T of the tile [Dv][columns]
  float* block_qk;     // K or Q of the block [kBlockN][D]
  float* block_ov;     // V or dO of the block [kBlockN][Dv]
  float* score;        // S, then P, of the block [kBlockN][columns]
  float* score_grad;   // dP, then dS [kBlockN][columns]
  float* gradient_qk;  // dQ^T or dK^T, not yet scaled [D][columns]
  float* gradient_v;   // dV^T [Dv][columns]; not used for dQ
  float* row;          // one row in fp32 [max(D, Dv)]
  float* lse;          // of each query: a lane's or a block row's [max(columns, kBlockN)]
  float* delta;        // the same
  float* first;        // the same: first and last key seen, from the block's or the tile's first key
  float* last;
  float* lane;  // 0, 1, 2, ... [columns]
};

/// The tile computations as compiled for one instruction set.
struct TileKernel {
  const char* target;  // "AVX-512"
  void (*run)(const ForwardParams&, const Tile&, Dtype dtype_in, Dtype dtype_out, const Scratch&);
  /// dQ of a tile of queries.
  void (*backward_queries)(const BackwardParams&, const BackwardTile&, Dtype dtype_in, Dtype dtype_gradient,
                           const BackwardScratch&);
  /// dK and dV of a tile of keys.
  void (*backward_keys)(const BackwardParams&, const BackwardTile&, Dtype dtype_in, Dtype dtype_gradient,
                        const BackwardScratch&);
};

/// The one that this machine runs.
const TileKernel& tile_kernel();

/// In portable C++.
const TileKernel& plain_kernel();

/// The best one of those written with Highway that this machine runs; null where there is none.
const TileKernel* highway_kernel();

/// "highway 1.0.3", or null in a build without it.
const char* highway_version();

}  // namespace fa::internal::cpu
