/// Memory and strided tensors on either side, for tests that lay their arguments out by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "tests/support/memory.hpp"

namespace fa::test {

/// Bytes of memory of one side; pages are taken as they are touched.
class Memory {
 public:
  /// Throws std::bad_alloc where the side has not that much.
  Memory(Side side, std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  void write(std::size_t offset, const void* from, std::size_t bytes);
  void read(std::size_t offset, void* to, std::size_t bytes) const;

 private:
  Side side_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// A strided tensor in memory of one side, written and read in logical order. What lies between its elements,
/// and after the last, keeps what `fill` wrote.
class Array {
 public:
  /// Strides in elements; `extra` elements are allocated after the last.
  Array(Side side, Dtype dtype, const std::int64_t (&size)[4], const std::int64_t (&stride)[3],
        std::int64_t extra = 0);
  /// Contiguous [B, H, S, D].
  Array(Side side, Dtype dtype, const std::int64_t (&size)[4]);

  /// Every byte of the buffer, gaps too.
  void fill(unsigned char byte);
  /// Every element of the buffer, gaps too.
  void fill_value(float value);
  /// The elements, from contiguous [B, H, S, D]; rounds to the dtype.
  void set(const std::vector<float>& values);
  /// One element.
  void set(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, float value);
  /// The elements, contiguous [B, H, S, D].
  std::vector<float> get() const;
  /// The elements' own bits, contiguous.
  std::vector<std::uint32_t> bits() const;

  /// The whole buffer, gaps too.
  std::vector<unsigned char> bytes() const;

  fa_tensor tensor() const;
  void* data() const { return memory_->data(); }
  std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return b * stride_[0] + h * stride_[1] + s * stride_[2] + d;
  }

 private:
  void put(std::int64_t at, float value);
  /// visit(first element, elements) for runs of elements without a gap, in logical order.
  template <class Visit>
  void for_each_run(const Visit& visit) const;

  Dtype dtype_;
  std::int64_t size_[4];
  std::int64_t stride_[4];
  std::int64_t elements_;  // of the buffer
  Side side_;
  std::unique_ptr<Memory> memory_;
};

/// The values' bits: unequal wherever the values differ in any way.
std::vector<std::uint32_t> bits_of(const std::vector<float>& values);

}  // namespace fa::test
