/// Which memory a pointer points to. The side a call runs on follows from it.
#pragma once

#include <string>

namespace fa::internal {

enum class MemoryKind {
  host,    // plain host memory
  pinned,  // page-locked host memory, which devices can read too
  device,  // device memory, or managed memory
};

struct MemoryFacts {
  MemoryKind kind = MemoryKind::host;
  int device = -1;  // CUDA ordinal; -1 for plain host memory
};

/// Asks the CUDA driver, where the process has loaded one; else everything is plain host memory. Leaves the
/// CUDA runtime's error state alone.
MemoryFacts memory_facts(const void* pointer);

/// "host memory", "pinned host memory", "memory of device 0".
std::string describe(const MemoryFacts& facts);

}  // namespace fa::internal
