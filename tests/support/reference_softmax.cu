#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/support/device_reference.hpp"

namespace fa::test {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float to_float(float x) {
  return x;
}
__device__ float to_float(__half x) {
  return __half2float(x);
}
__device__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
__device__ T from_float(float x);
template <>
__device__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

/// The same value in every thread; `partial` may be used again at once.
template <class Op>
__device__ float over_block(float x, Op op, float (&partial)[kWarps]) {
  for (int distance = 16; distance > 0; distance /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, distance));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = partial[0];
  for (int warp = 1; warp < kWarps; ++warp) x = op(x, partial[warp]);
  __syncthreads();
  return x;
}

/// One block a row. p = i + shift is the key position of query i; keys p - left ... p + right are visible.
template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_rows(T* scores, std::int64_t rows, std::int64_t first_row, std::int64_t M, std::int64_t N,
                 std::int64_t shift, std::int64_t left, std::int64_t right, float* lse) {
  __shared__ float partial[kWarps];
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    T* const row = scores + r * N;
    const std::int64_t p = (first_row + r) % M + shift;
    const std::int64_t from = max(p - left, std::int64_t{0});
    const std::int64_t to = min(p + right + 1, N);  // to <= from: no key is visible

    float largest = -INFINITY;
    for (std::int64_t j = from + threadIdx.x; j < to; j += kThreads)
      largest = fmaxf(largest, to_float(row[j]));
    largest = over_block(largest, Max(), partial);

    float sum = 0;
    for (std::int64_t j = from + threadIdx.x; j < to; j += kThreads) sum += expf(to_float(row[j]) - largest);
    sum = over_block(sum, Sum(), partial);

    for (std::int64_t j = threadIdx.x; j < N; j += kThreads) {
      const bool visible = j >= from && j < to;
      row[j] = from_float<T>(visible ? expf(to_float(row[j]) - largest) / sum : 0.0f);
    }
    if (lse != nullptr && threadIdx.x == 0) lse[r] = from < to ? largest + logf(sum) : -INFINITY;
  }
}

template <class T>
void launch(void* scores, std::int64_t rows, std::int64_t first_row, std::int64_t M, std::int64_t N,
            const Mask& mask, float* lse, CUstream_st* stream) {
  // Beyond M + N a bound hides nothing: no sum of the kernel overflows.
  const std::int64_t reach = M + N;
  const std::int64_t left = mask.left < 0 ? reach : std::min(mask.left, reach);
  const std::int64_t right = mask.right < 0 ? reach : std::min(mask.right, reach);
  const std::int64_t shift = mask.alignment == Alignment::top_left ? 0 : N - M;
  const auto blocks = static_cast<unsigned>(std::min(rows, std::int64_t{1} << 30));
  void* arguments[] = {&scores,
                       &rows,
                       &first_row,
                       &M,
                       &N,
                       const_cast<std::int64_t*>(&shift),
                       const_cast<std::int64_t*>(&left),
                       const_cast<std::int64_t*>(&right),
                       &lse};
  const cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void*>(&softmax_rows<T>), dim3(blocks),
                                             dim3(kThreads), arguments, 0, stream);
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("reference softmax: launch: ") + cudaGetErrorString(error));
}

}  // namespace

void reference_softmax(Dtype dtype, void* scores, std::int64_t rows, std::int64_t first_row, std::int64_t M,
                       std::int64_t N, const Mask& mask, float* lse, CUstream_st* stream) {
  if (rows <= 0 || M <= 0) return;
  switch (dtype) {
    case Dtype::float32:
      return launch<float>(scores, rows, first_row, M, N, mask, lse, stream);
    case Dtype::float16:
      return launch<__half>(scores, rows, first_row, M, N, mask, lse, stream);
    case Dtype::bfloat16:
      return launch<__nv_bfloat16>(scores, rows, first_row, M, N, mask, lse, stream);
    case Dtype::none:
      break;
  }
  throw std::runtime_error("reference softmax: scores without an element type");
}

}  // namespace fa::test
