/// Attention as its formula reads: three loops, the whole score matrix in between. What a program does that
/// has no attention library: no tiles, no online softmax, no vectors but the compiler's own.
#pragma once

#include <vector>

#include "tests/support/oracle.hpp"

namespace fa::bench {

/// fp32, contiguous tensors in logical order, one thread a head at a time.
class ThreePass {
 public:
  /// Scores take M N floats a thread (score_bytes).
  ThreePass(const test::Problem& problem, int threads);

  /// Bytes of all threads' scores.
  static double score_bytes(const test::Problem& problem, int threads);

  void run(const test::Inputs& inputs);
  const test::Outputs<float>& outputs() const { return outputs_; }

 private:
  void run_head(const test::Inputs& inputs, std::int64_t head, std::vector<float>& scores);

  test::Problem problem_;
  int threads_;
  float scale_;
  std::vector<std::vector<float>> scores_;  // [threads][M, N]
  test::Outputs<float> outputs_;
};

}  // namespace fa::bench
