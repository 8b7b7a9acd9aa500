#include "tests/support/memory.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace fa::test {

#if defined(__SANITIZE_ADDRESS__)
std::size_t guard_bytes = 0;
#else
std::size_t guard_bytes = 4096;
#endif

namespace {

constexpr std::align_val_t kAlignment{256};

#if defined(FLASHATTN_TEST_CUDA)

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

std::byte* allocate_on_device(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  return static_cast<std::byte*>(memory);
}

void free_on_device(void* memory) {
  cudaFree(memory);
}

void fill_on_device(void* to, int byte, std::size_t count) {
  check_cuda(cudaMemset(to, byte, count), "cudaMemset");
}

void copy_with_device(void* to, const void* from, std::size_t count) {
  check_cuda(cudaMemcpy(to, from, count, cudaMemcpyDefault), "cudaMemcpy");
}

#else

[[noreturn]] void no_cuda() {
  throw std::runtime_error("device memory: the tests were built without CUDA");
}
std::byte* allocate_on_device(std::size_t) {
  no_cuda();
}
void free_on_device(void*) {}
void fill_on_device(void*, int, std::size_t) {
  no_cuda();
}
void copy_with_device(void*, const void*, std::size_t) {
  no_cuda();
}

#endif

}  // namespace

bool have_device() {
#if defined(FLASHATTN_TEST_CUDA)
  // Asked once: a device that a test has since put out of order is no reason to skip the next one.
  static const bool found = [] {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count > 0;
    cudaGetLastError();  // no device is no error of the test's
    return false;
  }();
  return found;
#else
  return false;
#endif
}

GuardedBuffer::GuardedBuffer(Side side, std::size_t bytes, unsigned char pattern, std::size_t misalignment)
    : side_(side),
      pattern_(pattern),
      front_((guard_bytes + 255) / 256 * 256 + misalignment),
      bytes_(bytes),
      back_(guard_bytes) {
  const std::size_t total = front_ + bytes_ + back_;
  if (side_ == Side::host) {
    base_ = static_cast<std::byte*>(::operator new(total, kAlignment));
    std::memset(base_, pattern_, front_);
    std::memset(base_ + front_ + bytes_, pattern_, back_);
    return;
  }
  base_ = allocate_on_device(total);
  try {
    fill_on_device(base_, pattern_, front_);
    fill_on_device(base_ + front_ + bytes_, pattern_, back_);
  } catch (...) {
    free_on_device(base_);
    throw;
  }
}

GuardedBuffer::~GuardedBuffer() {
  if (side_ == Side::host) {
    ::operator delete(base_, kAlignment);
  } else {
    free_on_device(base_);
  }
}

void GuardedBuffer::write(const void* from) {
  if (bytes_ == 0) return;
  if (side_ == Side::host) {
    std::memcpy(data(), from, bytes_);
  } else {
    copy_with_device(data(), from, bytes_);
  }
}

void GuardedBuffer::copy_out(std::size_t at, std::size_t count, void* to) const {
  if (count == 0) return;
  if (side_ == Side::host) {
    std::memcpy(to, base_ + at, count);
  } else {
    copy_with_device(to, base_ + at, count);
  }
}

void GuardedBuffer::read(void* to) const {
  copy_out(front_, bytes_, to);
}

std::string GuardedBuffer::damage() const {
  struct Guard {
    const char* where;
    std::size_t at, count;
    long long first;  // of its bytes, counted from the payload's near end
  };
  const Guard guards[] = {{"before", 0, front_, -static_cast<long long>(front_)},
                          {"after", front_ + bytes_, back_, 0}};
  std::string text;
  std::vector<unsigned char> bytes;
  for (const Guard& guard : guards) {
    bytes.resize(guard.count);
    copy_out(guard.at, guard.count, bytes.data());
    long long wrong = 0, from = 0, to = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == pattern_) continue;
      to = guard.first + static_cast<long long>(i);
      if (wrong++ == 0) from = to;
    }
    if (wrong == 0) continue;
    if (!text.empty()) text += "; ";
    text.append(std::to_string(wrong)).append(" bytes ").append(guard.where).append(" it, from ");
    text.append(std::to_string(from)).append(" to ").append(std::to_string(to));
  }
  return text;
}

}  // namespace fa::test
