#include "bench/device/device_ceilings.hpp"

#include <algorithm>
#include <stdexcept>

#include "bench/device/clocks.hpp"
#include "bench/device/cublas.hpp"
#include "bench/device/probes.hpp"
#include "bench/device/random_fill.hpp"

namespace fa::bench {

namespace {

constexpr std::size_t kStreamBytes = std::size_t{1} << 30;
constexpr std::size_t kCublasBytes = std::size_t{64} << 20;
constexpr std::size_t kLargeDevice = std::size_t{16} << 30;
constexpr int kSize = 8192, kSizeOnSmallDevice = 4096;
constexpr double kSustainedSeconds = 0.5;

const char* word_of(Dtype dtype) {
  return dtype == Dtype::float32 ? "fp32" : dtype == Dtype::float16 ? "fp16" : "bf16";
}

/// `elements` random numbers in a row.
void fill_row(void* data, std::int64_t elements, Dtype dtype, std::uint64_t seed,
              const DeviceStream& stream) {
  const test::Placed row = {{1, 1, 1, elements}, {elements, elements, elements, 1}, 0, elements};
  fill_normal(data, row, dtype, seed, 1.0f, stream);
}

}  // namespace

/// C = A B, square, of one element type.
class DeviceCeilings::Products {
 public:
  Products(Dtype dtype, int size, const DeviceStream& stream)
      : dtype_(dtype),
        size_(size),
        a_(bytes()),
        b_(bytes()),
        c_(bytes()),
        workspace_(kCublasBytes),
        handle_(stream, workspace_.data(), kCublasBytes) {
    const std::int64_t elements = std::int64_t{size} * size;
    fill_row(a_.data(), elements, dtype, 1, stream);
    fill_row(b_.data(), elements, dtype, 2, stream);
    run();  // once outside any capture
    stream.wait();
  }

  void run() const {
    const float one = 1, zero = 0;
    const cudaDataType type = cublas_type(dtype_);
    check_cublas(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size_, size_, size_, &one, a_.data(), type,
                              size_, b_.data(), type, size_, &zero, c_.data(), type, size_, kCublasCompute,
                              CUBLAS_GEMM_DEFAULT),
                 "a ceiling: cublasGemmEx");
  }

  double flops() const { return 2.0 * size_ * size_ * size_; }

 private:
  std::size_t bytes() const {
    return static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_) * size_of(dtype_);
  }

  Dtype dtype_;
  int size_;
  DeviceMemory a_, b_, c_, workspace_;
  CublasHandle handle_;
};

DeviceCeilings::DeviceCeilings(const cudaDeviceProp& device, const DeviceStream& stream)
    : multiprocessors_(device.multiProcessorCount),
      size_(device.totalGlobalMem >= kLargeDevice ? kSize : kSizeOnSmallDevice),
      stream_(stream) {}

DeviceCeilings::~DeviceCeilings() = default;

DeviceCeilings::Products& DeviceCeilings::products(Dtype dtype) {
  std::unique_ptr<Products>& slot = products_[dtype];
  if (!slot) slot = std::make_unique<Products>(dtype, size_, stream_);
  return *slot;
}

const DeviceMemory& DeviceCeilings::stream_buffer() {
  if (!buffer_) {
    buffer_ = std::make_unique<DeviceMemory>(kStreamBytes);
    fill_row(buffer_->data(), static_cast<std::int64_t>(kStreamBytes / sizeof(float)), Dtype::float32, 3,
             stream_);
    stream_.wait();
  }
  return *buffer_;
}

Ceiling DeviceCeilings::gemm(Dtype dtype) {
  const std::string name = std::string("gemm_") + word_of(dtype);
  const auto found = made_.find(name);
  if (found != made_.end()) return found->second;
  const Products& product = products(dtype);
  const Ceiling ceiling = {
      {name, Clock::graph, graph_clock(stream_, [&product](std::int64_t) { product.run(); })},
      product.flops(),
      0,
      "cuBLAS, " + std::to_string(size_) + "^3"};
  made_.emplace(name, ceiling);
  return ceiling;
}

Ceiling DeviceCeilings::gemm_sustained(Dtype dtype) {
  const Ceiling one = gemm(dtype);
  const Products& product = products(dtype);
  const double seconds = one.candidate.time(20) / 20;
  const auto count = static_cast<int>(std::clamp(kSustainedSeconds / seconds, 1.0, 1e5));
  const auto enqueue = [&product, count](std::int64_t) {
    for (int i = 0; i < count; ++i) product.run();
  };
  return {{one.candidate.name + "/sustained", Clock::events, event_clock(stream_, enqueue)},
          one.flops * count,
          0,
          one.note + ", " + std::to_string(count) + " in a row"};
}

Ceiling DeviceCeilings::read() {
  const auto found = made_.find("read");
  if (found != made_.end()) return found->second;
  const DeviceMemory& buffer = stream_buffer();
  // The sink lies in the buffer: it is written for one sum in 2^32.
  const auto enqueue = [this, &buffer](std::int64_t) {
    read_stream(buffer.data(), buffer.bytes(), reinterpret_cast<unsigned*>(buffer.data()), multiprocessors_,
                stream_);
  };
  enqueue(0);  // once outside any capture
  stream_.wait();
  const Ceiling ceiling = {{"read", Clock::graph, graph_clock(stream_, enqueue)},
                           0,
                           static_cast<double>(buffer.bytes()),
                           "streaming read of 1 GiB"};
  made_.emplace("read", ceiling);
  return ceiling;
}

Ceiling DeviceCeilings::copy() {
  const DeviceMemory& buffer = stream_buffer();
  const auto enqueue = [this, &buffer](std::int64_t) {
    const std::size_t half = buffer.bytes() / 2;
    check_cuda(cudaMemcpyAsync(buffer.data() + half, buffer.data(), half, cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync");
  };
  // On the stream: in a graph the copy engine would do it, at half the speed.
  return {{"copy", Clock::events, event_clock(stream_, enqueue)},
          0,
          static_cast<double>(buffer.bytes()),
          "cudaMemcpyAsync of 512 MiB, read and written"};
}

}  // namespace fa::bench
