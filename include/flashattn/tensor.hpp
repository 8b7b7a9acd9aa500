/// A strided view of device or host memory. Views own nothing.
#pragma once

#include <cstdint>
#include <type_traits>

#include <flashattn/types.hpp>

FLASHATTN_NAMESPACE_BEGIN

/// A view in logical order [batch, head, sequence, feature]. Strides are in elements; stride[3] must be
/// 1, none may be negative, and inputs may have stride 0 (broadcast).
template <class T>
struct Tensor {
  T* data = nullptr;
  std::int64_t size[4] = {0, 0, 0, 0};
  std::int64_t stride[4] = {0, 0, 0, 1};

  /// A Tensor<T> serves where a Tensor<const T> is read.
  operator Tensor<const T>() const noexcept {
    return {data, {size[0], size[1], size[2], size[3]}, {stride[0], stride[1], stride[2], stride[3]}};
  }
};

/// Any strides: b, h, s are the distances in elements between batches, heads and positions.
template <class T>
constexpr Tensor<T> strided(T* data, std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D,
                            std::int64_t b, std::int64_t h, std::int64_t s) noexcept {
  return {data, {B, H, S, D}, {b, h, s, 1}};
}

/// Contiguous [B, H, S, D].
template <class T>
constexpr Tensor<T> bhsd(T* data, std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) noexcept {
  return strided(data, B, H, S, D, H * S * D, S * D, D);
}

/// Contiguous [B, S, H, D]: the sizes are given in logical order all the same, as (B, H, S, D).
template <class T>
constexpr Tensor<T> bshd(T* data, std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) noexcept {
  return strided(data, B, H, S, D, S * H * D, D, H * D);
}

/// `heads` heads from `first` on, of a contiguous [B, S, total_heads, D]: the slices of a packed
/// projection. For q, k, v packed as [B, S, H + 2 Hk, D] take (first, heads) = (0, H), (H, Hk), (H + Hk, Hk).
template <class T>
constexpr Tensor<T> packed_heads(T* data, std::int64_t B, std::int64_t S, std::int64_t total_heads,
                                 std::int64_t D, std::int64_t first, std::int64_t heads) noexcept {
  return strided(data == nullptr ? data : data + first * D, B, heads, S, D, S * total_heads * D, D,
                 total_heads * D);
}

FLASHATTN_NAMESPACE_END
