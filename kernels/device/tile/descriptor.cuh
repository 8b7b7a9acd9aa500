/// 16-bit tiles in shared memory as the copy engine writes them and wgmma reads them, with the 128-byte
/// swizzle: boxes of [rows][64 columns], so that a row is 128 bytes; in every 1024 bytes, which are eight
/// rows, 16-byte chunk c of row r lies at chunk c XOR r. PTX ISA, "Asynchronous Warpgroup Level Matrix
/// Instructions: shared memory matrix layout, matrix descriptor format".
#pragma once

#include <cstdint>

namespace fa::internal {

inline constexpr int kBoxColumns = 64;
inline constexpr int kBoxRowBytes = 128;
inline constexpr int kSwizzleAtomBytes = 1024;  // tiles start at multiples of it

/// What every tile's descriptor has in its upper word: groups of eight rows follow each other, and the
/// swizzle.
inline constexpr uint32_t kTileDescriptorHigh = uint32_t{1} << 30 | kSwizzleAtomBytes / 16;

/// The lower word of a tile's descriptor, in which it moves. By whole warps. leading_bytes: from one
/// 64-column box to the next where the columns are the product's M or N; unused elsewhere.
__device__ inline uint32_t tile_descriptor(uint32_t shared, int leading_bytes) {
  const uint32_t low = static_cast<uint32_t>(leading_bytes / 16) << 16 | (shared & 0x3ffff) / 16;
  // By shuffle, so that the compiler sees one value for the warp and steps it in uniform registers.
  return __shfl_sync(0xffffffffu, low, 0);
}

__device__ inline uint64_t whole_descriptor(uint32_t low) {
  return uint64_t{kTileDescriptorHigh} << 32 | low;
}

/// A tile whose rows are the product's M or N (Q, K): box k / 64, and in it columns from k on.
template <int kRows>
__device__ uint64_t rows_descriptor(uint32_t tile, int k) {
  return whole_descriptor(tile + (k / kBoxColumns * (kRows * kBoxRowBytes) + k % kBoxColumns * 2) / 16);
}

/// A tile whose rows are the product's K (V): from row k on.
__device__ inline uint64_t columns_descriptor(uint32_t tile, int k) {
  return whole_descriptor(tile + k * kBoxRowBytes / 16);
}

/// Bytes from a box's start to 16-byte chunk `chunk` of a row.
__device__ inline int box_offset(int row, int chunk) {
  return row * kBoxRowBytes + ((chunk ^ row % 8) * 16);
}

}  // namespace fa::internal
