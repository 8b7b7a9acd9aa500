/// Memory that notices what is written next to it.
#pragma once

#include <cstddef>
#include <string>

namespace fa::test {

enum class Side { host, device };

/// A device the tests can use. Without one, GPU tests say "skipped: no CUDA device".
bool have_device();

/// Bytes on either side of every GuardedBuffer: 4 KiB. Under AddressSanitizer 0, and to be set to 0 under
/// memcheck: there the allocation's own ends are watched, and reads past them are seen as well.
extern std::size_t guard_bytes;

/// [guard][payload][guard] in one allocation. The payload starts at a multiple of 256 bytes, plus
/// `misalignment`, and is not initialised.
class GuardedBuffer {
 public:
  GuardedBuffer(Side side, std::size_t bytes, unsigned char pattern, std::size_t misalignment = 0);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void* data() const { return base_ + front_; }
  std::size_t size() const { return bytes_; }
  /// The whole payload.
  void write(const void* from);
  void read(void* to) const;
  /// What differs from the pattern in the guards: "3 bytes before it, from -8 to -1"; empty: nothing.
  std::string damage() const;

 private:
  void copy_out(std::size_t at, std::size_t count, void* to) const;

  Side side_;
  unsigned char pattern_;
  std::size_t front_, bytes_, back_;
  std::byte* base_;
};

}  // namespace fa::test
