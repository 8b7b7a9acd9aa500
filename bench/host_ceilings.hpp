/// What this machine can do at most, measured: fp32 multiply-adds, and memory.
#pragma once

#include <cstddef>
#include <vector>

namespace fa::bench {

/// Runs `iterations` rounds of independent fp32 FMAs on the calling thread, in the widest vectors that the
/// machine has, and returns how many floating-point operations that was (an FMA is two).
double run_fma(long long iterations);

/// "AVX-512", "AVX2", "NEON", "scalar": what run_fma uses.
const char* fma_vectors();

/// Operations one iteration of run_fma makes.
double fma_flops_per_iteration();

/// The core's clock in Hz while it works: dependent one-cycle instructions against the steady clock. With
/// it the FMA peak can be read as FMAs a cycle, which a data sheet can confirm.
double core_clock();

/// Bytes that no cache is expected to keep: twice the last-level cache, between 64 and 256 MiB.
std::size_t streaming_bytes();

/// Two buffers of half of streaming_bytes(), read or copied by several threads.
class StreamBuffers {
 public:
  StreamBuffers();
  /// Reads both buffers once.
  void read(int threads);
  /// Copies one to the other.
  void copy(int threads);
  /// Bytes that a call of either moves: reads count, and writes.
  double bytes() const;

 private:
  std::vector<float> from_, to_;
};

}  // namespace fa::bench
