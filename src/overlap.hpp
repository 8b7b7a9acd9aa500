/// Whether strided tensors share memory: exact, for any strides, without walking the elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fa::internal {

/// The bytes of a strided tensor: runs of `run_bytes` at base + sum index[i] * stride_bytes[i].
struct Footprint {
  uintptr_t base;
  int64_t run_bytes;
  int64_t stride_bytes[3];  // not negative
  int64_t count[3];         // indices 0 .. count - 1
};

enum class Sharing { none, some, undecided };

/// Whether a byte of `a` is a byte of `b`. Each footprint spans at most 2^60 bytes. `undecided` only for
/// strides so interleaved that the bounded search gives up; a layout that nests its dimensions never is.
Sharing shared(const Footprint& a, const Footprint& b);

/// Whether two different indices of `a` reach one byte.
Sharing shared_within(const Footprint& a);

}  // namespace fa::internal
