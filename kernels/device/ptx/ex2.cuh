/// 2^x by the special-function unit. PTX ISA, "Floating Point Instructions: ex2".
#pragma once

namespace fa::internal::ptx {

/// Relative error up to 2^-22; subnormal inputs and results are flushed to zero; 2^-inf = 0.
__device__ inline float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace fa::internal::ptx
