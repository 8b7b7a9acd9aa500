/// Registers handed from one warpgroup of a block to another (sm_90a). PTX ISA, "Miscellaneous Instructions:
/// setmaxnreg".
#pragma once

namespace fa::internal::ptx {

/// By all warps of a warpgroup. kRegisters a thread: a multiple of 8 in [24, 256].
template <int kRegisters>
__device__ inline void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// The same; waits until as many have been given up.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fa::internal::ptx
