/// Stores by address in the shared window. PTX ISA, "Data Movement and Conversion Instructions: st".
#pragma once

#include <cstdint>

namespace fa::internal::ptx {

__device__ inline void store_shared(uint32_t shared, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(x) : "memory");
}

}  // namespace fa::internal::ptx
