#include "tests/support/array.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <stdexcept>

#include <sys/mman.h>

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace fa::test {
namespace {

// Elements from the first to the last, both included; 0 where a size is 0.
std::int64_t span(const std::int64_t (&size)[4], const std::int64_t (&stride)[4]) {
  std::int64_t last = 0;
  for (int dim = 0; dim < 4; ++dim) {
    if (size[dim] == 0) return 0;
    last += (size[dim] - 1) * stride[dim];
  }
  return last + 1;
}

std::uint32_t encode(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::float16:
      return half(value).bits;
    case Dtype::bfloat16:
      return bfloat16(value).bits;
    default:
      return std::bit_cast<std::uint32_t>(value);
  }
}

float decode(Dtype dtype, std::uint32_t bits) {
  if (dtype == Dtype::float32) return std::bit_cast<float>(bits);
  if (dtype == Dtype::float16) {
    half x;
    x.bits = static_cast<std::uint16_t>(bits);
    return static_cast<float>(x);
  }
  bfloat16 x;
  x.bits = static_cast<std::uint16_t>(bits);
  return static_cast<float>(x);
}

}  // namespace

Memory::Memory(Side side, std::size_t bytes) : side_(side), bytes_(std::max<std::size_t>(bytes, 1)) {
  if (side_ == Side::host) {
    void* p =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = p;
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  if (cudaMalloc(&data_, bytes_) != cudaSuccess) {
    cudaGetLastError();
    throw std::bad_alloc();
  }
#else
  throw std::bad_alloc();
#endif
}

Memory::~Memory() {
  if (side_ == Side::host) {
    munmap(data_, bytes_);
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  cudaFree(data_);
#endif
}

void Memory::write(std::size_t offset, const void* from, std::size_t bytes) {
  if (offset + bytes > bytes_) throw std::out_of_range("Memory::write");
  void* to = static_cast<char*>(data_) + offset;
  if (side_ == Side::host) {
    std::memcpy(to, from, bytes);
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  if (cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
    throw std::runtime_error("cudaMemcpy");
#endif
}

void Memory::read(std::size_t offset, void* to, std::size_t bytes) const {
  if (offset + bytes > bytes_) throw std::out_of_range("Memory::read");
  const void* from = static_cast<const char*>(data_) + offset;
  if (side_ == Side::host) {
    std::memcpy(to, from, bytes);
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  if (cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
    throw std::runtime_error("cudaMemcpy");
#endif
}

Array::Array(Side side, Dtype dtype, const std::int64_t (&size)[4], const std::int64_t (&stride)[3],
             std::int64_t extra)
    : dtype_(dtype),
      size_{size[0], size[1], size[2], size[3]},
      stride_{stride[0], stride[1], stride[2], 1},
      elements_(span(size_, stride_) + extra),
      side_(side) {
  memory_ = std::make_unique<Memory>(side, static_cast<std::size_t>(elements_) * size_of(dtype));
}

Array::Array(Side side, Dtype dtype, const std::int64_t (&size)[4])
    : Array(side, dtype, size, {size[1] * size[2] * size[3], size[2] * size[3], size[3]}) {}

void Array::put(std::int64_t at, float value) {
  const std::uint32_t bits = encode(dtype_, value);  // little-endian: a 16-bit value is its first two bytes
  memory_->write(static_cast<std::size_t>(at) * size_of(dtype_), &bits, size_of(dtype_));
}

void Array::fill(unsigned char byte) {
  const std::vector<unsigned char> bytes(static_cast<std::size_t>(elements_) * size_of(dtype_), byte);
  memory_->write(0, bytes.data(), bytes.size());
}

void Array::fill_value(float value) {
  const std::size_t width = size_of(dtype_);
  const std::uint32_t bits = encode(dtype_, value);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(elements_) * width);
  for (std::size_t i = 0; i < bytes.size(); i += width) std::memcpy(&bytes[i], &bits, width);
  memory_->write(0, bytes.data(), bytes.size());
}

// Rows that follow each other without a gap travel together: a device is asked once for each run of them.
template <class Visit>
void Array::for_each_run(const Visit& visit) const {
  const bool rows_touch = stride_[2] == size_[3];
  const bool heads_touch = rows_touch && stride_[1] == size_[2] * stride_[2];
  const bool batches_touch = heads_touch && stride_[0] == size_[1] * stride_[1];
  const std::int64_t B = batches_touch ? 1 : size_[0], H = heads_touch ? 1 : size_[1],
                     S = rows_touch ? 1 : size_[2];
  const std::int64_t run = size_[0] * size_[1] * size_[2] * size_[3] / std::max<std::int64_t>(1, B * H * S);
  if (run == 0) return;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t s = 0; s < S; ++s) visit(offset(b, h, s, 0), static_cast<std::size_t>(run));
}

void Array::set(const std::vector<float>& values) {
  const std::size_t width = size_of(dtype_);
  std::size_t next = 0;
  for_each_run([&](std::int64_t at, std::size_t count) {
    std::vector<unsigned char> run(count * width);
    for (std::size_t i = 0; i < run.size(); i += width) {
      const std::uint32_t bits = encode(dtype_, values.at(next++));
      std::memcpy(&run[i], &bits, width);
    }
    memory_->write(static_cast<std::size_t>(at) * width, run.data(), run.size());
  });
  if (next != values.size()) throw std::invalid_argument("Array::set: another number of values");
}

void Array::set(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, float value) {
  put(offset(b, h, s, d), value);
}

std::vector<std::uint32_t> Array::bits() const {
  const std::size_t width = size_of(dtype_);
  std::vector<std::uint32_t> all;
  for_each_run([&](std::int64_t at, std::size_t count) {
    std::vector<unsigned char> run(count * width);
    memory_->read(static_cast<std::size_t>(at) * width, run.data(), run.size());
    for (std::size_t i = 0; i < run.size(); i += width) {
      std::uint32_t one = 0;
      std::memcpy(&one, &run[i], width);
      all.push_back(one);
    }
  });
  return all;
}

std::vector<float> Array::get() const {
  std::vector<float> values;
  for (const std::uint32_t one : bits()) values.push_back(decode(dtype_, one));
  return values;
}

std::vector<unsigned char> Array::bytes() const {
  std::vector<unsigned char> all(static_cast<std::size_t>(elements_) * size_of(dtype_));
  memory_->read(0, all.data(), all.size());
  return all;
}

fa_tensor Array::tensor() const {
  return {memory_->data(),
          static_cast<fa_dtype>(dtype_),
          0,
          {size_[0], size_[1], size_[2], size_[3]},
          {stride_[0], stride_[1], stride_[2], stride_[3]}};
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

}  // namespace fa::test
