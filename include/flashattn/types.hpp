/// Element types: what T may be in fa::forward<Version, T>.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <flashattn/flashattn.h>

// CUDA's own 16-bit types are accepted where their headers are found; none of them is required.
// FLASHATTN_NO_CUDA_TYPES leaves them out.
#if !defined(FLASHATTN_NO_CUDA_TYPES) && defined(__has_include)
#if __has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define FLASHATTN_HAS_CUDA_TYPES 1
#endif
#endif

// One inline namespace per minor version: two versions of these headers can meet in one process.
#define FLASHATTN_NAMESPACE_BEGIN \
  namespace fa {                  \
  inline namespace v0_1 {
#define FLASHATTN_NAMESPACE_END \
  }                             \
  }

FLASHATTN_NAMESPACE_BEGIN

/// Element type of a tensor, the runtime form.
enum class Dtype : std::int32_t {
  none = FA_DTYPE_NONE,
  float32 = FA_FLOAT32,
  float16 = FA_FLOAT16,
  bfloat16 = FA_BFLOAT16,
};

namespace detail {

inline std::uint32_t bits_of(float x) noexcept {
  std::uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

inline float float_of(std::uint32_t u) noexcept {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

/// IEEE binary32 to binary16, round to nearest, ties to even.
inline std::uint16_t half_bits(float x) noexcept {
  const std::uint32_t u = bits_of(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t magnitude = u & 0x7fffffffu;
  std::uint32_t result;
  if (magnitude > 0x7f800000u) {  // NaN: keep it quiet, keep its upper payload
    result = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    result = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal: 2^-14 and above
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    result = (rounded - 0x38000000u) >> 13;
  } else {  // subnormal or zero: adding 0.5 aligns the last kept bit with the float's own last bit
    result = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | result);
}

inline float half_value(std::uint16_t h) noexcept {
  const std::uint32_t sign = (static_cast<std::uint32_t>(h) & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(h) & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return float_of(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // 2^-24
  return float_of(sign | bits_of(subnormal));
}

/// Binary32 to bfloat16, round to nearest, ties to even.
inline std::uint16_t bfloat16_bits(float x) noexcept {
  const std::uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float bfloat16_value(std::uint16_t b) noexcept {
  return float_of(static_cast<std::uint32_t>(b) << 16);
}

}  // namespace detail

/// IEEE binary16 where <cuda_fp16.h> is not at hand. Same bits as __half.
struct half {
  std::uint16_t bits;

  half() = default;
  explicit half(float x) noexcept : bits(detail::half_bits(x)) {}
  explicit operator float() const noexcept { return detail::half_value(bits); }
};

/// bfloat16 where <cuda_bf16.h> is not at hand. Same bits as __nv_bfloat16.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  explicit bfloat16(float x) noexcept : bits(detail::bfloat16_bits(x)) {}
  explicit operator float() const noexcept { return detail::bfloat16_value(bits); }
};

static_assert(sizeof(half) == 2 && sizeof(bfloat16) == 2, "16-bit types hold 16 bits");
static_assert(std::is_trivially_copyable<half>::value && std::is_trivially_copyable<bfloat16>::value,
              "16-bit types can be copied byte by byte");

/// dtype_of<T>: the runtime form of T; Dtype::none for a type that no tensor holds.
template <class T>
inline constexpr Dtype dtype_of = Dtype::none;
template <>
inline constexpr Dtype dtype_of<float> = Dtype::float32;
template <>
inline constexpr Dtype dtype_of<half> = Dtype::float16;
template <>
inline constexpr Dtype dtype_of<bfloat16> = Dtype::bfloat16;
#if defined(FLASHATTN_HAS_CUDA_TYPES)
template <>
inline constexpr Dtype dtype_of<__half> = Dtype::float16;
template <>
inline constexpr Dtype dtype_of<__nv_bfloat16> = Dtype::bfloat16;
#endif

/// Bytes of one element; 0 for Dtype::none.
constexpr std::size_t size_of(Dtype dtype) noexcept {
  return dtype == Dtype::float32 ? 4 : dtype == Dtype::float16 || dtype == Dtype::bfloat16 ? 2 : 0;
}

/// "float32", "float16", "bfloat16", "none".
constexpr const char* name_of(Dtype dtype) noexcept {
  return dtype == Dtype::float32    ? "float32"
         : dtype == Dtype::float16  ? "float16"
         : dtype == Dtype::bfloat16 ? "bfloat16"
                                    : "none";
}

FLASHATTN_NAMESPACE_END
