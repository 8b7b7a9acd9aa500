/// Barriers of some of a block's threads, by number: 0 is __syncthreads', 1 to 15 are free. PTX ISA,
/// "Parallel Synchronization and Communication Instructions: barrier".
#pragma once

namespace fa::internal::ptx {

/// Waits until `threads` threads have come, those that only arrive among them.
__device__ inline void barrier_sync(int barrier, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline void barrier_arrive(int barrier, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace fa::internal::ptx
