#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <stdexcept>

#include "bench/device/cuda.hpp"
#include "bench/device/random_fill.hpp"

namespace fa::bench {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 132 * 64;

struct Tensor {
  std::int64_t size[4];
  std::int64_t stride[4];
};

/// The mixing function of splitmix64 (Steele, Lea, Flood 2014): neighbouring counters give unrelated bits.
__device__ std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Box and Muller's transform of two 24-bit uniform numbers.
__device__ float normal(std::uint64_t bits) {
  constexpr float kStep = 0x1p-24f;
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * kStep;
  const float v = static_cast<float>(bits & 0xffffffu) * kStep;
  return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill(T* out, Tensor tensor, std::int64_t elements, std::uint64_t key, float factor) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; n < elements;
       n += step) {
    std::int64_t rest = n, at = 0;
    for (int dim = 3; dim >= 0; --dim) {
      at += rest % tensor.size[dim] * tensor.stride[dim];
      rest /= tensor.size[dim];
    }
    out[at] = static_cast<T>(factor * normal(mix(key + static_cast<std::uint64_t>(n))));
  }
}

template <class T>
cudaError_t launch(void* first, Tensor tensor, std::uint64_t key, float factor, cudaStream_t stream) {
  T* out = static_cast<T*>(first);
  std::int64_t elements = tensor.size[0] * tensor.size[1] * tensor.size[2] * tensor.size[3];
  if (elements == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::min((elements + kThreads - 1) / kThreads, kMostBlocks));
  void* arguments[] = {&out, &tensor, &elements, &key, &factor};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&fill<T>), dim3(blocks), dim3(kThreads), arguments, 0,
                          stream);
}

/// Counters of another seed lie far away.
std::uint64_t key_of(std::uint64_t seed) {
  return (seed + 1) * 0x9e3779b97f4a7c15u;
}

}  // namespace

void fill_normal(void* buffer, const test::Placed& placed, Dtype dtype, std::uint64_t seed, float factor,
                 CUstream_st* stream) {
  Tensor tensor;
  for (int dim = 0; dim < 4; ++dim) {
    // One value for all that share an address: no two threads write it.
    tensor.size[dim] =
        placed.stride[dim] == 0 ? std::min<std::int64_t>(placed.size[dim], 1) : placed.size[dim];
    tensor.stride[dim] = placed.stride[dim];
  }
  std::byte* const first =
      static_cast<std::byte*>(buffer) + placed.offset * static_cast<std::int64_t>(size_of(dtype));
  const std::uint64_t key = key_of(seed);
  switch (dtype) {
    case Dtype::float32:
      return check_cuda(launch<float>(first, tensor, key, factor, stream), "launch of random_fill");
    case Dtype::float16:
      return check_cuda(launch<__half>(first, tensor, key, factor, stream), "launch of random_fill");
    case Dtype::bfloat16:
      return check_cuda(launch<__nv_bfloat16>(first, tensor, key, factor, stream), "launch of random_fill");
    case Dtype::none:
      break;
  }
  throw std::runtime_error("random_fill: no element type");
}

}  // namespace fa::bench
