/// The smallest room: it proves how rooms are built, and fills memory for the tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace fa::test::fill {

template <class T, int HeadDim>
struct Config {
  using Element = T;
  static constexpr int kHeadDim = HeadDim;
  static constexpr int kThreads = 256;
};

/// out[row, d] = first + d.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    fill_kernel(typename Config::Element* __restrict__ gOut,  // [rows, kHeadDim]
                int64_t rows, float first) {
  const int64_t element = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x;
  if (element >= rows * Config::kHeadDim) return;
  const int d = static_cast<int>(element % Config::kHeadDim);
  gOut[element] = static_cast<typename Config::Element>(first + static_cast<float>(d));
}

}  // namespace fa::test::fill
