/// How a room launches: the shared-memory opt-in, the launch check, the debug synchronisation. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "kernels/params.hpp"

namespace fa::internal {

/// FLASHATTN_DEBUG_SYNC=1 waits after every launch, so that a fault is reported by the call that made it.
inline bool debug_sync() {
  static const bool on = [] {
    const char* text = std::getenv("FLASHATTN_DEBUG_SYNC");
    return text != nullptr && text[0] == '1';
  }();
  return on;
}

/// Dynamic shared memory that a kernel gets without asking.
inline constexpr int kSharedMemoryWithoutOptIn = 48 * 1024;

/// cuFuncSetAttribute of the driver. The runtime's cudaFuncSetAttribute clears the error that an application
/// may have left pending (seen with CUDA 13.0); the driver knows nothing of it.
using SetFunctionAttribute = int (*)(cudaFunction_t function, int attribute, int value);
inline constexpr int kMaxDynamicSharedSizeBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

inline SetFunctionAttribute driver_set_function_attribute() {
  static const SetFunctionAttribute entry = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuFuncSetAttribute", &found, 9000, cudaEnableDefault, &result);
#else
    cudaGetDriverEntryPoint("cuFuncSetAttribute", &found, cudaEnableDefault, &result);
#endif
    return reinterpret_cast<SetFunctionAttribute>(found);
  }();
  return entry;
}

/// Loads kKernel on the current device, and where it is to have more dynamic shared memory than a kernel gets
/// without asking, lets it have all that a block may have there.
template <auto kKernel>
cudaError_t prepare_kernel(const DeviceProperties& device, int shared_bytes) {
  cudaFunction_t function = nullptr;
  const cudaError_t error = cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(kKernel));
  if (error != cudaSuccess || shared_bytes <= kSharedMemoryWithoutOptIn) return error;
  const SetFunctionAttribute set = driver_set_function_attribute();
  if (set == nullptr) return cudaErrorSymbolNotFound;
  const bool done = set(function, kMaxDynamicSharedSizeBytes, device.shared_memory_per_block) == 0;
  return done ? cudaSuccess : cudaErrorInvalidValue;
}

/// Launches kKernel on the current device and returns the launch's own status: an error that the application
/// left pending is neither reported nor cleared.
template <auto kKernel, class... Params>
cudaError_t launch_kernel(const LaunchContext& context, dim3 grid, dim3 block, int shared_bytes,
                          Params... params) {
  // One bit per device that has been prepared; devices beyond the 64th are prepared for every launch.
  static std::atomic<uint64_t> prepared{0};
  const uint64_t bit = context.device->ordinal >= 0 && context.device->ordinal < 64
                           ? uint64_t{1} << context.device->ordinal
                           : 0;
  const bool asks = shared_bytes > kSharedMemoryWithoutOptIn;
  if (asks && (prepared.load(std::memory_order_relaxed) & bit) == 0) {
    const cudaError_t error = prepare_kernel<kKernel>(*context.device, shared_bytes);
    if (error != cudaSuccess) return error;
    prepared.fetch_or(bit, std::memory_order_relaxed);
  }

  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = context.stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kKernel, params...);
  if (error == cudaSuccess && debug_sync()) return cudaStreamSynchronize(context.stream);
  return error;
}

/// Blocks of a grid with one for each (batch, head, tile of block_m queries). reject_grid keeps them below
/// 2^31.
inline unsigned query_blocks(const ForwardParams& p, int block_m) {
  const int64_t query_tiles = (static_cast<int64_t>(p.M) + block_m - 1) / block_m;
  return static_cast<unsigned>(query_tiles * p.B * p.H);
}

/// launch_kernel over that grid, with Config's threads and query rows a block.
template <auto kKernel, class Config, class... Params>
cudaError_t launch_query_tiles(const LaunchContext& context, int shared_bytes, const ForwardParams& p,
                               Params... more) {
  const dim3 grid(query_blocks(p, Config::kBlockM));
  return launch_kernel<kKernel>(context, grid, dim3(Config::kThreads), shared_bytes, p, more...);
}

}  // namespace fa::internal
