/// The rungs of the ladder, and which of them exist for which element type.
#pragma once

#include <cstddef>

#include <flashattn/types.hpp>

FLASHATTN_NAMESPACE_BEGIN

/// A kernel of the ladder, the CPU backend, or the choice among them.
enum class Version : fa_version {
  V0 = FA_V0,
  V1 = FA_V1,
  V2 = FA_V2,
  V3 = FA_V3,
  V4 = FA_V4,
  V5 = FA_V5,
  V6 = FA_V6,
  V7 = FA_V7,
  V8 = FA_V8,
  CPU = FA_CPU,
  Auto = FA_AUTO,
};

inline constexpr Version V0 = Version::V0;
inline constexpr Version V1 = Version::V1;
inline constexpr Version V2 = Version::V2;
inline constexpr Version V3 = Version::V3;
inline constexpr Version V4 = Version::V4;
inline constexpr Version V5 = Version::V5;
inline constexpr Version V6 = Version::V6;
inline constexpr Version V7 = Version::V7;
inline constexpr Version V8 = Version::V8;
inline constexpr Version CPU = Version::CPU;
inline constexpr Version Auto = Version::Auto;

/// "V0" ... "V8", "CPU", "Auto".
constexpr const char* name_of(Version version) noexcept {
  switch (version) {
    case Version::V0:
      return "V0";
    case Version::V1:
      return "V1";
    case Version::V2:
      return "V2";
    case Version::V3:
      return "V3";
    case Version::V4:
      return "V4";
    case Version::V5:
      return "V5";
    case Version::V6:
      return "V6";
    case Version::V7:
      return "V7";
    case Version::V8:
      return "V8";
    case Version::CPU:
      return "CPU";
    case Version::Auto:
      return "Auto";
  }
  return "unknown version";
}

/// The pass a kernel computes.
enum class Pass : fa_pass { forward = FA_PASS_FORWARD, backward = FA_PASS_BACKWARD };

namespace detail {

struct Existing {
  Pass pass;
  Version version;
  Dtype dtype;
};

/// Every row of the kernel table, in its order. src/kernel_table.cpp asserts that the two agree.
inline constexpr Existing existing[] = {
    {Pass::forward, Version::V0, Dtype::float32},   {Pass::forward, Version::V1, Dtype::float32},
    {Pass::forward, Version::V2, Dtype::float32},   {Pass::forward, Version::V2, Dtype::float16},
    {Pass::forward, Version::V2, Dtype::bfloat16},  {Pass::forward, Version::V3, Dtype::float32},
    {Pass::forward, Version::V4, Dtype::float32},   {Pass::forward, Version::V4, Dtype::float16},
    {Pass::forward, Version::V4, Dtype::bfloat16},  {Pass::forward, Version::V5, Dtype::float16},
    {Pass::forward, Version::V5, Dtype::bfloat16},  {Pass::forward, Version::V6, Dtype::float16},
    {Pass::forward, Version::V6, Dtype::bfloat16},  {Pass::forward, Version::V7, Dtype::float16},
    {Pass::forward, Version::V7, Dtype::bfloat16},  {Pass::forward, Version::V8, Dtype::float16},
    {Pass::forward, Version::V8, Dtype::bfloat16},  {Pass::forward, Version::CPU, Dtype::float32},
    {Pass::forward, Version::CPU, Dtype::float16},  {Pass::forward, Version::CPU, Dtype::bfloat16},
    {Pass::backward, Version::V2, Dtype::float32},  {Pass::backward, Version::V2, Dtype::float16},
    {Pass::backward, Version::V2, Dtype::bfloat16}, {Pass::backward, Version::CPU, Dtype::float32},
    {Pass::backward, Version::CPU, Dtype::float16}, {Pass::backward, Version::CPU, Dtype::bfloat16},
};

constexpr bool in_table(Pass pass, Version version, Dtype dtype) noexcept {
  for (const Existing& row : existing) {
    if (row.pass == pass && row.dtype == dtype && (row.version == version || version == Version::Auto)) {
      return true;
    }
  }
  return false;
}

}  // namespace detail

/// Whether the library has a kernel for the pair, the same in every build. A kernel that exists may
/// still reject a problem, or have been left out of a build: fa::explain says so.
template <Version V, class T, Pass P = Pass::forward>
inline constexpr bool exists = detail::in_table(P, V, dtype_of<T>);

FLASHATTN_NAMESPACE_END
