/// Tiles of 16-bit rows in shared memory without padding and without bank conflicts.
///
/// A row is kHeadDim / 8 chunks of 16 bytes. Eight neighbouring rows of one chunk column, which ldmatrix
/// reads at once, must lie in eight different groups of four banks. Row r keeps chunk c at c XOR f(r):
///   rows of a multiple of 128 bytes start at the same bank:       f(r) = r mod 8
///   rows of an odd multiple of 64 bytes alternate between halves: f(r) = (r / 2) mod 4
#pragma once

#include <cstdint>

#include "kernels/device/ptx/cp_async.cuh"
#include "kernels/device/ptx/pin.cuh"
#include "kernels/device/tile/divide.cuh"

namespace fa::internal {

template <int kHeadDim>
struct Swizzle {
  static_assert(kHeadDim % 32 == 0);
  static constexpr int kRowBytes = 2 * kHeadDim;
  static constexpr int kChunks = kHeadDim / 8;                // of a row
  static constexpr int kPeriod = kHeadDim % 64 == 0 ? 8 : 4;  // chunks that f permutes among themselves

  __device__ static constexpr int f(int row) { return kPeriod == 8 ? row % 8 : row / 2 % 4; }

  /// Bytes from the tile's start.
  __device__ static constexpr int offset(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ f(row)) * 16);
  }
};

/// A lane's row addresses for ldmatrix: of the 16 x 16 block in row block i and column block k. The XOR falls
/// on address bits that are a lane's own, so that kPeriod / 2 addresses and constant offsets make all of
/// them. Layout: Swizzle, or one with another offset of chunks.
template <int kHeadDim, class Layout = Swizzle<kHeadDim>>
class LaneRows {
  uint32_t first_;

 public:
  /// row, chunk: the lane's in block (0, 0); row in [0, 16), chunk in [0, 2). The tile is aligned to 128
  /// bytes.
  __device__ LaneRows(uint32_t tile, int row, int chunk) : first_(tile + Layout::offset(row, chunk)) {}

  __device__ uint32_t operator()(int i, int k) const {
    constexpr int kBlocks = Layout::kPeriod / 2;  // column blocks that f permutes among themselves
    return (first_ ^ (k % kBlocks * 32)) + i * 16 * Layout::kRowBytes + k / kBlocks * (kBlocks * 32);
  }
};

/// Whether load_tile_async() copies whole rows: where the threads are one a chunk of eight rows.
template <int kThreads, class Layout>
inline constexpr bool kLoadsWholeRows = kThreads == 8 * Layout::kChunks;

/// Starts copying kRows rows of D features into a swizzled tile; rows from `rows` on become zeros, and so do
/// features from D on, but where kLoadsWholeRows: those are left alone. Rows are aligned to 16 bytes, and D
/// is a multiple of 8. chunks: D / 8. gRows is the tile's first row.
template <int kRows, int kHeadDim, int kThreads, class Layout = Swizzle<kHeadDim>, class T>
__device__ void load_tile_async(uint32_t tile, const T* gRows, int64_t stride, int rows, int D,
                                const Divisor& chunks) {
  int thread = static_cast<int>(threadIdx.x);
  if constexpr (kLoadsWholeRows<kThreads, Layout>) {
    static_assert(kRows % 8 == 0 && Layout::kPeriod == 8);  // rows 8 apart keep their chunks alike
    // Along the rows, so that a warp reads one piece of memory where rows follow each other: at D104 rows of
    // 208 bytes share their 128-byte lines.
    ptx::pin(thread);  // else row and chunk stay in registers, and others are spilled
    const int row = divide(thread, chunks), chunk = thread - row * chunks.value;
    if (row >= 8) return;
    const uint32_t to = tile + Layout::offset(row, chunk);
    const T* from = gRows + row * stride + chunk * 8;
#pragma unroll
    for (int r = 0; r < kRows; r += 8) {
      ptx::cp_async_16_or_zero(to + r * Layout::kRowBytes, from, row + r < rows);
      from += 8 * stride;
    }
  } else {
    constexpr int kThreadsPerRow = Layout::kPeriod;
    constexpr int kRowsAtOnce = kThreads / kThreadsPerRow;
    static_assert(kRows % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0);
    const int row = thread / kThreadsPerRow, chunk = thread % kThreadsPerRow;
    const uint32_t to = tile + Layout::offset(row, chunk);
    const T* from = gRows + row * stride + chunk * 8;
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
#pragma unroll
      for (int c = 0; c < Layout::kChunks; c += kThreadsPerRow) {
        const bool inside = row + r < rows && (chunk + c) * 8 < D;
        ptx::cp_async_16_or_zero(to + r * Layout::kRowBytes + c * 16, from + c * 8, inside);
      }
      from += kRowsAtOnce * stride;
    }
  }
}

/// Starts making zeros of all rows' chunks from `first` on. gAny: an address aligned to 16 bytes, not read.
template <int kRows, int kHeadDim, int kThreads, class Layout = Swizzle<kHeadDim>>
__device__ void clear_chunks_async(uint32_t tile, int first, const void* gAny) {
  const int beyond = Layout::kChunks - first;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * beyond; i += kThreads) {
    ptx::cp_async_16_or_zero(tile + Layout::offset(i / beyond, first + i % beyond), gAny, false);
  }
}

/// Starts copying rows of D features, aligned to kPieceBytes, 4 or 8, of whose elements D is a multiple: two
/// threads a chunk, half of it each. Rows from `rows` on and features from D on become zeros.
template <int kPieceBytes, int kRows, int kHeadDim, int kThreads, class Layout = Swizzle<kHeadDim>, class T>
__device__ void load_tile_in_pieces_async(uint32_t tile, const T* gRows, int64_t stride, int rows, int D) {
  constexpr int kPiece = kPieceBytes / sizeof(T);  // elements
  constexpr int kThreadsPerRow = 2 * Layout::kPeriod;
  constexpr int kRowsAtOnce = kThreads / kThreadsPerRow;
  static_assert(kRows % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kThreadsPerRow;
  const int half = static_cast<int>(threadIdx.x) % kThreadsPerRow;
  const uint32_t to = tile + Layout::offset(row, half / 2) + half % 2 * 8;
  const T* from = gRows + row * stride + half * 4;
#pragma unroll
  for (int r = 0; r < kRows; r += kRowsAtOnce) {
#pragma unroll
    for (int c = 0; c < 2 * Layout::kChunks; c += kThreadsPerRow) {
#pragma unroll
      for (int e = 0; e < 4; e += kPiece) {
        const bool inside = row + r < rows && (half + c) * 4 + e < D;
        ptx::cp_async_or_zero<kPieceBytes>(to + r * Layout::kRowBytes + c * 8 + e * sizeof(T),
                                           from + c * 4 + e, inside);
      }
    }
    from += kRowsAtOnce * stride;
  }
}

}  // namespace fa::internal
