/// The fill room's door: plain C++.
#pragma once

#include <cstdint>

#include "kernels/params.hpp"

namespace fa::test::fill {

struct Params {
  void* out;  // [rows, head_dim], contiguous
  int64_t rows;
  int head_dim;  // 64 or 128
  Dtype dtype;   // float32 or float16
  float first;   // out[row, d] = first + d
};

/// Returns the launch's cudaError_t; cudaErrorInvalidValue (1) where no instance fits.
int launch(const Params& params, struct ::CUstream_st* stream);

}  // namespace fa::test::fill
