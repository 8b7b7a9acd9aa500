#include "src/placement.hpp"

#include <atomic>

#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>
#endif

namespace fa::internal {
namespace {

// cuPointerGetAttributes of the CUDA driver API, section "Unified Addressing". Its numbers are part of the
// driver's stable ABI, so that a build without CUDA can still tell a device pointer from a host one.
using PointerGetAttributes = int (*)(unsigned count, const int* attributes, void** values,
                                     unsigned long long pointer);
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr int kAttributeDeviceOrdinal = 9;
constexpr unsigned kMemoryTypeHost = 1;
constexpr unsigned kMemoryTypeDevice = 2;

#if defined(__linux__)

// How many shared objects the process has loaded so far.
unsigned long long objects_loaded() {
  unsigned long long adds = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;  // the first object tells
      },
      &adds);
  return adds;
}

// Null while the process has not loaded the driver: then no pointer can be a device pointer. Once found it
// stays loaded, since the handle is kept. A search that fails costs microseconds, so that it is repeated only
// after another object was loaded.
PointerGetAttributes driver_query() {
  static std::atomic<PointerGetAttributes> known{nullptr};
  static std::atomic<unsigned long long> absent_at{0};
  PointerGetAttributes query = known.load(std::memory_order_acquire);
  if (query != nullptr) return query;
  const unsigned long long now = objects_loaded();
  if (absent_at.load(std::memory_order_relaxed) == now) return nullptr;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) {
    absent_at.store(now, std::memory_order_relaxed);
    return nullptr;
  }
  query = reinterpret_cast<PointerGetAttributes>(dlsym(driver, "cuPointerGetAttributes"));
  known.store(query, std::memory_order_release);
  return query;
}

#else

PointerGetAttributes driver_query() {
  return nullptr;
}

#endif

}  // namespace

MemoryFacts memory_facts(const void* pointer) {
  const PointerGetAttributes query = driver_query();
  if (query == nullptr) return {};
  const auto address = reinterpret_cast<unsigned long long>(pointer);
  unsigned type = 0;
  int ordinal = -1;
  const int attributes[] = {kAttributeMemoryType, kAttributeDeviceOrdinal};
  void* values[] = {&type, &ordinal};
  // A pointer the driver does not know leaves type 0; a driver that is not initialised returns an error.
  if (query(2, attributes, values, address) != 0) return {};
  if (type == kMemoryTypeDevice) return {MemoryKind::device, ordinal};
  if (type != kMemoryTypeHost) return {};
  unsigned managed = 0;
  void* managed_value = &managed;
  const bool is_managed = query(1, &kAttributeIsManaged, &managed_value, address) == 0 && managed != 0;
  return {is_managed ? MemoryKind::device : MemoryKind::pinned, ordinal};
}

std::string describe(const MemoryFacts& facts) {
  switch (facts.kind) {
    case MemoryKind::host:
      return "host memory";
    case MemoryKind::pinned:
      return "pinned host memory";
    case MemoryKind::device:
      return "memory of device " + std::to_string(facts.device);
  }
  return "unknown memory";
}

}  // namespace fa::internal
