#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/launch.hpp"
#include "tests/device/soak/launch.hpp"

namespace fa::test::soak {
namespace {

constexpr int kThreads = 256;
// Each takes several steps through a large result: the comparison leaves room for the other stream's kernels.
constexpr size_t kMostBlocks = 128;

static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));

__device__ unsigned long long* counter(std::uint64_t* value) {
  return reinterpret_cast<unsigned long long*>(value);
}

__global__ void __launch_bounds__(kThreads)
    compare_kernel(const uint4* gGot, const uint4* gWant, size_t count,  // [count]
                   std::uint64_t call, Differences* gFound) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  unsigned words = 0;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const uint4 got = gGot[i], want = gWant[i];
    words += (got.x != want.x) + (got.y != want.y) + (got.z != want.z) + (got.w != want.w);
  }
  if (words == 0) return;
  atomicAdd(counter(&gFound->words), static_cast<unsigned long long>(words));
  atomicMin(counter(&gFound->first_call), static_cast<unsigned long long>(call));
}

}  // namespace

int compare(const Comparison& comparison, Differences* found, ::CUstream_st* stream) {
  if (comparison.bytes % sizeof(uint4) != 0) return cudaErrorInvalidValue;
  const size_t count = comparison.bytes / sizeof(uint4);
  if (count == 0) return cudaSuccess;
  const internal::DeviceProperties device;
  const internal::LaunchContext context = {&device, stream, 0};
  const size_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  return internal::launch_kernel<compare_kernel>(context, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                                                 0, static_cast<const uint4*>(comparison.got),
                                                 static_cast<const uint4*>(comparison.want), count,
                                                 comparison.call, found);
}

}  // namespace fa::test::soak
