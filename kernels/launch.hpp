/// How a room launches: the shared-memory opt-in, the launch check, the debug synchronisation. For .cu files.
#pragma once

#include <cuda_runtime.h>

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

/// Loads `kernel` on the current device and lets it have `shared_bytes` of dynamic shared memory.
template <class... Params>
cudaError_t prepare_kernel(void (*kernel)(Params...), int shared_bytes) {
  if (shared_bytes > kSharedMemoryWithoutOptIn) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  }
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

/// Launches `kernel` and returns the launch's own status: an error that the application left pending is
/// neither reported nor cleared.
template <class... Params>
cudaError_t launch_kernel(void (*kernel)(Params...), dim3 grid, dim3 block, int shared_bytes,
                          cudaStream_t stream, Params... params) {
  if (shared_bytes > kSharedMemoryWithoutOptIn) {
    const cudaError_t error = prepare_kernel(kernel, shared_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, params...);
  if (error == cudaSuccess && debug_sync()) return cudaStreamSynchronize(stream);
  return error;
}

}  // namespace fa::internal
