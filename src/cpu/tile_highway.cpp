/// The tile in Google Highway's vectors, compiled once for each instruction set worth having. Only Highway's
/// headers are used: its own run-time dispatch lives in a library, so this file has its own.
#include "src/cpu/tile.hpp"

#if FLASHATTN_HAVE_HIGHWAY

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/cpu/tile_macros.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

// Left out: what is older than AVX2 (the plain path runs there), AVX-512's successors (lower bits; they gain
// nothing here), and SVE, whose vectors have no size to make arrays of. Defined from outside, it leaves out
// others for a test.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
// AES and carry-less products are not used, so no processor is refused for want of them.
#define HWY_DISABLE_PCLMUL_AES
#define HWY_TARGET_INCLUDE "src/cpu/tile_highway.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// The target being compiled is one of ours.
#undef FA_TARGET
#if HWY_ARCH_X86
#define FA_TARGET (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#elif HWY_ARCH_ARM_A64
#define FA_TARGET (HWY_TARGET == HWY_STATIC_TARGET)
#else
#define FA_TARGET 0
#endif

#if FA_TARGET
HWY_BEFORE_NAMESPACE();
namespace fa::internal::cpu::HWY_NAMESPACE {
#include "src/cpu/vec_highway-inl.hpp"

#include "src/cpu/tile-inl.hpp"

#include "src/cpu/backward_tile-inl.hpp"
}  // namespace fa::internal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE

namespace fa::internal::cpu {
namespace {

#if HWY_ARCH_X86
// The instruction sets that Highway's target attributes name, FMA, BMI and F16C with AVX2 among them.
[[maybe_unused]] bool has_avx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // Not every compiler knows "f16c" in __builtin_cpu_supports.
  const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw");
}
#endif

}  // namespace

const TileKernel* highway_kernel() {
#if HWY_TARGETS & HWY_AVX3
  static constexpr TileKernel avx512{"AVX-512", N_AVX3::run_tile, N_AVX3::run_query_tile,
                                     N_AVX3::run_key_tile};
  if (has_avx512()) return &avx512;
#endif
#if HWY_TARGETS & HWY_AVX2
  static constexpr TileKernel avx2{"AVX2", N_AVX2::run_tile, N_AVX2::run_query_tile, N_AVX2::run_key_tile};
  if (has_avx2()) return &avx2;
#endif
#if HWY_ARCH_ARM_A64
  static constexpr TileKernel neon{"NEON", HWY_NAMESPACE::run_tile, HWY_NAMESPACE::run_query_tile,
                                   HWY_NAMESPACE::run_key_tile};
  return &neon;
#else
  return nullptr;
#endif
}

#define FA_TEXT_(x) #x
#define FA_TEXT(x) FA_TEXT_(x)

const char* highway_version() {
  return "highway " FA_TEXT(HWY_MAJOR) "." FA_TEXT(HWY_MINOR) "." FA_TEXT(HWY_PATCH);
}

}  // namespace fa::internal::cpu

#endif  // HWY_ONCE

#else  // FLASHATTN_HAVE_HIGHWAY

namespace fa::internal::cpu {

const TileKernel* highway_kernel() {
  return nullptr;
}
const char* highway_version() {
  return nullptr;
}

}  // namespace fa::internal::cpu

#endif  // FLASHATTN_HAVE_HIGHWAY
