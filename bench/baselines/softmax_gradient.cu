#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <stdexcept>

#include "bench/baselines/softmax_gradient.hpp"
#include "bench/device/cuda.hpp"

namespace fa::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / 32;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

/// kWidth neighbours in a row, moved as one.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vector {
  T x[kWidth];
};

/// One warp a row: delta first, then dS = P o (dP - delta), kWidth elements of a lane at a time.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    softmax_gradient_kernel(const T* __restrict__ probabilities,  // [rows, N]
                            T* __restrict__ gradient,             // [rows, N], dP and then dS
                            const T* __restrict__ out,            // [rows, Dv]
                            const T* __restrict__ dout,           // [rows, Dv]
                            std::int64_t rows, std::int64_t N, std::int64_t Dv) {
  using Elements = Vector<T, kWidth>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kRowsPerBlock;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
       row < rows; row += step) {
    float delta = 0;
    for (std::int64_t d = lane; d < Dv; d += 32)
      delta += static_cast<float>(dout[row * Dv + d]) * static_cast<float>(out[row * Dv + d]);
    for (int distance = 16; distance > 0; distance /= 2)
      delta += __shfl_xor_sync(0xffffffffu, delta, distance);

    const auto* const P = reinterpret_cast<const Elements*>(probabilities + row * N);
    auto* const dP = reinterpret_cast<Elements*>(gradient + row * N);
#pragma unroll 4
    for (std::int64_t j = lane; j < N / kWidth; j += 32) {
      const Elements p = P[j];
      Elements d = dP[j];
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        d.x[i] = static_cast<T>(static_cast<float>(p.x[i]) * (static_cast<float>(d.x[i]) - delta));
      dP[j] = d;
    }
  }
}

template <class T>
void launch(const void* probabilities, void* gradient, const void* out, const void* dout, std::int64_t rows,
            std::int64_t N, std::int64_t Dv, cudaStream_t stream) {
  constexpr int kWidth = 16 / sizeof(T);
  const void* const kernel = N % kWidth == 0
                                 ? reinterpret_cast<const void*>(&softmax_gradient_kernel<T, kWidth>)
                                 : reinterpret_cast<const void*>(&softmax_gradient_kernel<T, 1>);
  const auto blocks =
      static_cast<unsigned>(std::min((rows + kRowsPerBlock - 1) / kRowsPerBlock, kMostBlocks));
  void* arguments[] = {&probabilities, &gradient, &out, &dout, &rows, &N, &Dv};
  check_cuda(cudaLaunchKernel(kernel, dim3(blocks), dim3(kThreads), arguments, 0, stream),
             "launch of softmax_gradient");
}

}  // namespace

void softmax_gradient(Dtype dtype, const void* probabilities, void* gradient, const void* out,
                      const void* dout, std::int64_t rows, std::int64_t N, std::int64_t Dv,
                      CUstream_st* stream) {
  if (rows <= 0 || N <= 0) return;
  switch (dtype) {
    case Dtype::float32:
      return launch<float>(probabilities, gradient, out, dout, rows, N, Dv, stream);
    case Dtype::float16:
      return launch<__half>(probabilities, gradient, out, dout, rows, N, Dv, stream);
    case Dtype::bfloat16:
      return launch<__nv_bfloat16>(probabilities, gradient, out, dout, rows, N, Dv, stream);
    case Dtype::none:
      break;
  }
  throw std::runtime_error("softmax_gradient: no element type");
}

}  // namespace fa::bench
