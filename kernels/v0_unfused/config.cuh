#pragma once

namespace fa::internal::v0 {

/// 8 x 8 results a thread: 16 shared reads for 64 multiply-adds, in 130 to 145 registers. Not tuned further:
/// the rung is there for what its score matrix costs.
struct Config {
  static constexpr int kBlockM = 128;  // rows of a product's tile
  static constexpr int kBlockN = 64;   // columns
  static constexpr int kDepth = 16;    // slice of the summed dimension in shared memory
  static constexpr int kThreads = 128;
  static constexpr int kRowsPerThread = 8;
  static constexpr int kColumnsPerThread = 8;
  static constexpr int kSoftmaxThreads = 128;
};

}  // namespace fa::internal::v0
