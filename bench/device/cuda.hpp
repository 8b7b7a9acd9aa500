/// CUDA as the bench uses it: every status becomes an exception with CUDA's own text, memory frees itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

namespace fa::bench {

/// Throws std::bad_alloc where memory ran out, else std::runtime_error "what: CUDA's text". An error that
/// the context can survive does not stay pending.
void check_cuda(cudaError_t error, const char* what);

/// Device memory, aligned to at least 256 bytes, not initialised.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

/// Bytes of the current device that cudaMalloc can still give out, as cudaMemGetInfo counts them: whatever
/// else uses the device is seen too.
std::size_t free_device_bytes();

/// "18253611008 bytes (17.0 GiB)".
std::string bytes_text(std::size_t bytes);

/// Empty where the device has as much free; else "out of memory: needs ... bytes (... GiB), ... are free".
std::string why_not_enough_memory(std::size_t bytes);

/// A stream that does not wait for the default one.
class DeviceStream {
 public:
  DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  ~DeviceStream();

  operator cudaStream_t() const { return stream_; }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace fa::bench
