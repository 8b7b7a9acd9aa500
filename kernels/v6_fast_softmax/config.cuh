#pragma once

#include "kernels/device/attention/wmma_rows.cuh"
#include "kernels/device/tile/reduce.cuh"

namespace fa::internal::v6 {

/// What V6 changes. e^x by the special-function unit: ex2.approx of x log2(e), 2 ulp and what the rounding of
/// the product adds; x <= 0 here, so that the result is in [0, 1] and its error far below a 16-bit P's.
/// Reductions by XOR butterfly: no shuffle hands the result back.
struct FastSoftmax {
  static __device__ float max(float x) { return group_max(x); }
  static __device__ float sum(float x) { return group_sum(x); }
  static __device__ float exp(float x) { return __expf(x); }
};

/// V5's tiles and pitches. T is a 16-bit type.
template <class T>
struct Config {
  using Element = T;
  using Softmax = FastSoftmax;
  static constexpr int kHeadDim = 64;  // D and Dv
  static constexpr int kBlockM = 64;
  static constexpr int kBlockN = 32;  // one key per lane
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRowsPerWarp = kBlockM / kWarps;
  static constexpr int kColumnsPerLane = kHeadDim / 32;  // of O: columns lane and lane + 32
  static constexpr int kBlocksPerMultiprocessor = 3;  // asked of the compiler: at most 80 registers a thread
  // Eight rows, 16 bytes apart in the banks: the addresses that a fragment is loaded from fill all 32 banks.
  static constexpr int kPitchQ = kHeadDim + 8;
  static constexpr int kPitchKV = kHeadDim + 8;
  static constexpr int kPitchP = kBlockN + 8;
  static constexpr int kPitchScratch = 32 + 4;  // floats
};

/// 28,160 bytes.
template <class Config>
using SharedTiles = WmmaTiles<Config>;

template <class Config>
inline constexpr int kSharedBytes = sizeof(SharedTiles<Config>);

}  // namespace fa::internal::v6
