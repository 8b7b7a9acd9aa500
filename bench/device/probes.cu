#include <algorithm>
#include <cstdint>
#include <iterator>

#include "bench/device/cuda.hpp"
#include "bench/device/probes.hpp"

namespace fa::bench {
namespace {

// Some 200 us at the clocks of current devices (1.3 to 2.5 GHz).
constexpr long long kSpinCycles = 400'000;

__global__ void spin_kernel(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

constexpr int kReadThreads = 256;
constexpr int kReadBlocksPerMultiprocessor = 8;
constexpr int kReadsInFlight = 4;
constexpr unsigned kImprobable = 0x5eed5eedu;

__global__ void __launch_bounds__(kReadThreads)
    read_kernel(const uint4* __restrict__ data, std::size_t count, unsigned* sink) {
  constexpr std::size_t kTile = static_cast<std::size_t>(kReadThreads) * kReadsInFlight;
  unsigned sum = 0;
  for (std::size_t tile = blockIdx.x * kTile; tile < count; tile += gridDim.x * kTile) {
    uint4 values[kReadsInFlight] = {};
#pragma unroll
    for (int i = 0; i < kReadsInFlight; ++i) {
      const std::size_t at = tile + static_cast<std::size_t>(i) * kReadThreads + threadIdx.x;
      if (at < count) values[i] = data[at];
    }
#pragma unroll
    for (int i = 0; i < kReadsInFlight; ++i) sum += values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
  }
  if (sum == kImprobable) *sink = sum;
}

template <std::size_t Bytes>
struct Parameters {
  unsigned char bytes[Bytes];
};

template <std::size_t Bytes>
__global__ void empty(Parameters<Bytes>) {}

template <std::size_t Bytes>
cudaError_t launch_empty(cudaStream_t stream) {
  static Parameters<Bytes> parameters;
  void* arguments[] = {&parameters};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&empty<Bytes>), dim3(1), dim3(32), arguments, 0,
                          stream);
}

template <std::size_t Bytes>
constexpr EmptyKernel kEmpty = {Bytes, launch_empty<Bytes>};

}  // namespace

void spin(cudaStream_t stream) {
  long long cycles = kSpinCycles;
  void* arguments[] = {&cycles};
  check_cuda(
      cudaLaunchKernel(reinterpret_cast<const void*>(&spin_kernel), dim3(1), dim3(1), arguments, 0, stream),
      "launch of spin");
}

void read_stream(const void* data, std::size_t bytes, unsigned* sink, int multiprocessors,
                 cudaStream_t stream) {
  std::size_t count = bytes / sizeof(uint4);
  void* arguments[] = {&data, &count, &sink};
  const dim3 blocks(static_cast<unsigned>(std::max(1, multiprocessors) * kReadBlocksPerMultiprocessor));
  check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(&read_kernel), blocks, dim3(kReadThreads),
                              arguments, 0, stream),
             "launch of read_stream");
}

EmptyKernel empty_kernel(std::size_t bytes) {
  static constexpr EmptyKernel kKernels[] = {kEmpty<64>,  kEmpty<128>,  kEmpty<160>,  kEmpty<192>,
                                             kEmpty<200>, kEmpty<208>,  kEmpty<224>,  kEmpty<256>,
                                             kEmpty<320>, kEmpty<384>,  kEmpty<512>,  kEmpty<640>,
                                             kEmpty<768>, kEmpty<1024>, kEmpty<2048>, kEmpty<4000>};
  const auto above = std::upper_bound(
      std::begin(kKernels), std::end(kKernels), bytes,
      [](std::size_t wanted, const EmptyKernel& kernel) { return wanted < kernel.parameter_bytes; });
  return above == std::begin(kKernels) ? *above : *std::prev(above);
}

}  // namespace fa::bench
