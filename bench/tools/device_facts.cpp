#include "bench/tools/device_facts.hpp"

#include "tests/support/memory.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#endif

namespace fa::bench {

#if defined(FLASHATTN_TEST_CUDA)

namespace {

/// "580.159.04": the first word of the kernel module's version line that is a number.
std::string driver_from_proc() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line, word;
  std::getline(file, line);
  for (std::istringstream words(line); words >> word;) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) {
      return word;
    }
  }
  return "";
}

/// NVML knows it where /proc does not show it.
std::string driver_from_nvml() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "";
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto version =
      reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  char text[96] = "";
  if (init == nullptr || version == nullptr || init() != 0 || version(text, sizeof text) != 0) return "";
  return text;
}

std::string driver_version() {
  std::string text = driver_from_proc();
  if (text.empty()) text = driver_from_nvml();
  return text.empty() ? "unknown" : text;
}

std::string dotted(int version) {  // 13000: CUDA 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Facts device_facts() {
  cudaDeviceProp all;
  int device = 0, driver = 0, runtime = 0;
  if (!test::have_device() || cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&all, device) != cudaSuccess) {
    return {{"gpu", "none"}};
  }
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  char gpu[400];
  std::snprintf(gpu, sizeof gpu, "%s, %d SMs, compute capability %d.%d, %.0f GB, L2 %.0f MB", all.name,
                all.multiProcessorCount, all.major, all.minor, static_cast<double>(all.totalGlobalMem) * 1e-9,
                static_cast<double>(all.l2CacheSize) * 1e-6);
  return {{"gpu", gpu},
          {"driver", driver_version() + ", up to CUDA " + dotted(driver)},
          {"cuda runtime", dotted(runtime)}};
}

#else

Facts device_facts() {
  return {{"gpu", "none: built without CUDA"}};
}

#endif

}  // namespace fa::bench
