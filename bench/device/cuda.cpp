#include "bench/device/cuda.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

namespace fa::bench {

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + ": " +
                           cudaGetErrorString(error));
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  data_ = static_cast<std::byte*>(memory);
}

DeviceMemory::~DeviceMemory() {
  cudaFree(data_);
}

DeviceStream::DeviceStream() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

DeviceStream::~DeviceStream() {
  cudaStreamDestroy(stream_);
}

}  // namespace fa::bench
