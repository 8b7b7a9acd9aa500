/// Kernels that measure the machine rather than attention.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace fa::bench {

/// Keeps the stream busy for some 200 us, so that what is enqueued behind it starts without host time.
void spin(cudaStream_t stream);

/// Reads `bytes` (a multiple of 16) once, in 16-byte loads. `sink` gets nothing unless the data sums to one
/// certain number. Asynchronous.
void read_stream(const void* data, std::size_t bytes, unsigned* sink, int multiprocessors,
                 cudaStream_t stream);

/// A kernel that does nothing, with parameters of a given size.
struct EmptyKernel {
  std::size_t parameter_bytes;
  /// One thread block, launched as <<<>>> does.
  cudaError_t (*launch)(cudaStream_t stream);
};

/// The one of the most parameter bytes that are not more than `bytes` (at least 64): what it costs to launch
/// is then never overstated.
EmptyKernel empty_kernel(std::size_t bytes);

}  // namespace fa::bench
