/// The softmax's scale as kernels take it, which work with powers of two and want it positive.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace fa::internal {

struct Scale {
  float log2;  // |scale| log2(e), or 1 where scale = 0
  float sign;  // of scale: -1, 0 or 1
};

inline Scale make_scale(float scale) {
  if (scale == 0) return {.log2 = 1.0f, .sign = 0.0f};
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLargest = std::numeric_limits<float>::max();  // infinity would make NaN of a score of 0
  return {.log2 = static_cast<float>(std::min(std::abs(double{scale}) * kLog2E, kLargest)),
          .sign = scale > 0 ? 1.0f : -1.0f};
}

}  // namespace fa::internal
