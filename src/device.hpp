/// CUDA devices, seen from the host: cached properties, the current device, errors. In a build without CUDA
/// every function that would need a device throws CudaError.
#pragma once

#include <cstddef>

#include "kernels/params.hpp"

namespace fa::internal {

/// Properties of device `ordinal`: read once and kept. Throws CudaError where there is no such device, and
/// InvalidArgument for a malformed FLASHATTN_MAX_SMEM (bytes of shared memory) or
/// FLASHATTN_MAX_MULTIPROCESSORS: they lower what is seen here.
const DeviceProperties& device_properties(int ordinal);

/// Stands in for a device where a row runs on the host.
const DeviceProperties& no_device();

/// Makes `ordinal` the calling thread's current device until the end of the scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = -1;  // -1: nothing to restore
};

/// Keeps the CUDA runtime's last error as the application left it: what a failed call of ours leaves behind
/// is cleared at the end of the scope. Where the application's own was pending before, a failed call of ours
/// takes its place (the runtime keeps one error), and is left.
class ErrorStateGuard {
 public:
  ErrorStateGuard();
  ~ErrorStateGuard();
  ErrorStateGuard(const ErrorStateGuard&) = delete;
  ErrorStateGuard& operator=(const ErrorStateGuard&) = delete;

 private:
  bool pending_ = false;
};

/// Throws CudaError, or OutOfMemory where `code` (a cudaError_t) says so; returns for 0. `what` names the
/// call.
void check_cuda(int code, const char* what);

/// Stream-ordered memory from the device's own pool, on the current device. The pool keeps up to 256 MiB of
/// freed memory for later calls; what is beyond goes back to the driver at the next synchronisation. Under
/// graph capture both become nodes of the graph. prepare_pool makes the pool ahead of the first of them.
void prepare_pool(int ordinal);
void* allocate(size_t bytes, int ordinal, struct ::CUstream_st* stream);
void release(void* memory, struct ::CUstream_st* stream) noexcept;

}  // namespace fa::internal
