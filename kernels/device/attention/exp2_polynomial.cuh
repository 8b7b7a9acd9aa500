/// 2^x on the FMA pipe, for an ablation of V8. The special-function unit makes 16 exponentials per clock and
/// SM; where that alone is what a kernel waits for, a part of them can be made here. Cody and Waite's
/// reduction: x = n + f with n the nearest integer, 2^f by a polynomial, n added to its exponent.
#pragma once

#include <cuda_runtime.h>

namespace fa::internal {

/// Relative error up to 2.9e-6 for x from -126 to 127; 2^0 = 1; 0 for x <= -127, -infinity and NaN; between
/// -127 and -126 a subnormal that is smaller than 2^-126.
__device__ inline float exp2_polynomial(float x) {
  constexpr float kRound = 0x1.8p23f;  // x + kRound has the nearest integer in its last bits
  // Below, the exponent would wrap around. At -127 it becomes 0, and so does 1.0's whole word.
  x = fmaxf(x, -127.0f);
  const float shifted = x + kRound;
  const float f = x - (shifted - kRound);
  // Least largest relative error of degree 4 on [-1/2, 1/2] with 2^0 = 1, by Lawson's iteration.
  float y = 9.58285416e-3f;
  y = fmaf(y, f, 5.59064314e-2f);
  y = fmaf(y, f, 2.40240986e-1f);
  y = fmaf(y, f, 6.93124193e-1f);
  y = fmaf(y, f, 1.0f);
  return __int_as_float((__float_as_int(shifted) << 23) + __float_as_int(y));
}

}  // namespace fa::internal
