#include "src/device.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include <flashattn/error.hpp>

#if FLASHATTN_WITH_CUDA
#include <cuda_runtime_api.h>

#include "src/environment.hpp"
#endif

namespace fa::internal {

const DeviceProperties& no_device() {
  static const DeviceProperties none;
  return none;
}

#if FLASHATTN_WITH_CUDA

namespace {

constexpr int kMaxDevices = 128;
constexpr unsigned long long kRetainedBytes = 256ull << 20;

struct Device {
  std::once_flag properties_once;
  DeviceProperties properties{};
  std::once_flag pool_once;
  cudaMemPool_t pool = nullptr;
};

Device& device(int ordinal) {
  static Device devices[kMaxDevices];
  if (ordinal < 0 || ordinal >= kMaxDevices)
    throw CudaError("device " + std::to_string(ordinal) + " does not exist");
  return devices[ordinal];
}

// What a smaller device would have, for running its tiles and schedules on a larger one.
int limited(const char* variable, int value) {
  return std::min(value, environment_number(variable, 1 << 30).value_or(value));
}

void read_properties(int ordinal, DeviceProperties& p) {
  const auto attribute = [ordinal](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
    return value;
  };
  p.ordinal = ordinal;
  p.major = attribute(cudaDevAttrComputeCapabilityMajor);
  p.minor = attribute(cudaDevAttrComputeCapabilityMinor);
  p.multiprocessors = limited("FLASHATTN_MAX_MULTIPROCESSORS", attribute(cudaDevAttrMultiProcessorCount));
  p.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  p.shared_memory_per_block =
      limited("FLASHATTN_MAX_SMEM", attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  cudaDeviceProp all;
  check_cuda(cudaGetDeviceProperties(&all, ordinal), "cudaGetDeviceProperties");
  std::copy_n(all.name, std::min(std::strlen(all.name), sizeof p.name - 1), p.name);
}

// Lets the calling thread make calls that a stream capture under way would forbid, since they touch no
// stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

cudaMemPool_t pool(int ordinal) {
  Device& d = device(ordinal);
  std::call_once(d.pool_once, [&] {
    const RelaxedCapture relaxed;
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = ordinal;
    cudaMemPool_t made = nullptr;
    check_cuda(cudaMemPoolCreate(&made, &props), "cudaMemPoolCreate");
    unsigned long long retained = kRetainedBytes;
    check_cuda(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &retained),
               "cudaMemPoolSetAttribute");
    d.pool = made;
  });
  return d.pool;
}

}  // namespace

void check_cuda(int code, const char* what) {
  if (code == cudaSuccess) return;
  const cudaError_t error = static_cast<cudaError_t>(code);
  const std::string text =
      std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw CudaError(text);
}

const DeviceProperties& device_properties(int ordinal) {
  Device& d = device(ordinal);
  std::call_once(d.properties_once, [&] {
    const RelaxedCapture relaxed;
    read_properties(ordinal, d.properties);
  });
  return d.properties;
}

CurrentDevice::CurrentDevice(int ordinal) {
  int current = 0;
  check_cuda(cudaGetDevice(&current), "cudaGetDevice");
  if (current == ordinal) return;
  check_cuda(cudaSetDevice(ordinal), "cudaSetDevice");
  previous_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

ErrorStateGuard::ErrorStateGuard() : pending_(cudaPeekAtLastError() != cudaSuccess) {}

ErrorStateGuard::~ErrorStateGuard() {
  if (!pending_) cudaGetLastError();
}

void prepare_pool(int ordinal) {
  pool(ordinal);
}

void* allocate(size_t bytes, int ordinal, struct ::CUstream_st* stream) {
  void* memory = nullptr;
  check_cuda(cudaMallocFromPoolAsync(&memory, bytes, pool(ordinal), stream), "cudaMallocFromPoolAsync");
  return memory;
}

void release(void* memory, struct ::CUstream_st* stream) noexcept {
  cudaFreeAsync(memory, stream);
}

#else

void check_cuda(int code, const char* what) {
  if (code != 0) throw CudaError(std::string(what) + " failed in a build without CUDA");
}

const DeviceProperties& device_properties(int ordinal) {
  throw CudaError("the tensors are in memory of device " + std::to_string(ordinal) +
                  ", but this libflashattn was built without CUDA");
}

CurrentDevice::CurrentDevice(int) {}
CurrentDevice::~CurrentDevice() {
  (void)previous_;
}
ErrorStateGuard::ErrorStateGuard() {}
ErrorStateGuard::~ErrorStateGuard() {
  (void)pending_;
}

void prepare_pool(int) {}

void* allocate(size_t, int ordinal, struct ::CUstream_st*) {
  device_properties(ordinal);
  return nullptr;
}
void release(void*, struct ::CUstream_st*) noexcept {}

#endif

}  // namespace fa::internal
