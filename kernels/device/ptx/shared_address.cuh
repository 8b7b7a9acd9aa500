/// Addresses in the shared window, as ldmatrix and cp.async want them. PTX ISA, "State Spaces: Shared".
#pragma once

#include <cstdint>

namespace fa::internal::ptx {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace fa::internal::ptx
