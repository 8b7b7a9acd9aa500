/// Asynchronous copies from global to shared memory (sm_80). PTX ISA, "Data Movement and Conversion
/// Instructions: cp.async", "cp.async.commit_group", "cp.async.wait_group".
#pragma once

#include <cstdint>

namespace fa::internal::ptx {

/// Starts a copy of 16 bytes past L1, or of 16 bytes of zeros: then nothing is read. Both addresses are
/// multiples of 16.
__device__ inline void cp_async_16_or_zero(uint32_t shared, const void* global, bool copies) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(copies ? 16 : 0)
               : "memory");
}

/// The same of kBytes, 4 or 8, by way of L1: a copy past L1 has 16. Both addresses are multiples of kBytes.
template <int kBytes>
__device__ inline void cp_async_or_zero(uint32_t shared, const void* global, bool copies) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(kBytes),
               "r"(copies ? kBytes : 0)
               : "memory");
}

/// Makes one group of the copies that the thread has started since its last.
__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most kPending of the thread's newest groups are still under way.
template <int kPending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace fa::internal::ptx
