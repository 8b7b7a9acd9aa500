/// Comparison of results on a device, without a copy to the host: plain C++.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace fa::test::soak {

/// A call that there is not.
inline constexpr std::uint64_t kNoCall = ~std::uint64_t{0};

/// What comparisons have found so far; lies in device memory.
struct Differences {
  std::uint64_t words = 0;             // 32-bit words that differed, in all calls together
  std::uint64_t first_call = kNoCall;  // the lowest number of a call that had one
};

/// The result of one call, and what it should be. Both start at multiples of 16 bytes.
struct Comparison {
  const void* got;
  const void* want;
  std::size_t bytes;  // a multiple of 16
  std::uint64_t call;
};

/// Adds what differs to *found, on the stream. Returns the launch's cudaError_t; cudaErrorInvalidValue (1)
/// where bytes are no multiple of 16.
int compare(const Comparison& comparison, Differences* found, ::CUstream_st* stream);

}  // namespace fa::test::soak
