/// The online softmax: what a running maximum asks of what was summed under an older one.
#pragma once

#include <cuda_runtime.h>

namespace fa::internal {

/// -infinity: the maximum of no scores, and the score of a hidden key.
__device__ inline float no_score() {
  return -INFINITY;
}

/// The maximum to subtract: 0 for a row that has seen no key yet, so that exp(-inf - m) is 0 and not NaN.
__device__ inline float finite_max(float m) {
  return m == no_score() ? 0.0f : m;
}

/// LSE = m + ln(l); -infinity for an empty row.
__device__ inline float log_sum_exp(float m, float l) {
  return l == 0.0f ? no_score() : m + logf(l);
}

/// The same where R is in powers of two: LSE = R ln(2) + ln(l). One rounding, the same in every instance.
__device__ inline float log_sum_exp2(float R, float l) {
  constexpr float kLn2 = 0.6931471805599453f;
  return l == 0.0f ? no_score() : fmaf(R, kLn2, logf(l));
}

/// 1 / l; 0 for an empty row, so that O = 0.
__device__ inline float inverse_sum(float l) {
  return l == 0.0f ? 0.0f : 1.0f / l;
}

}  // namespace fa::internal
