/// Which keys a query sees.
#pragma once

#include <cstdint>

#include <flashattn/types.hpp>

FLASHATTN_NAMESPACE_BEGIN

/// Where query 0 stands among the keys, when M and N differ.
enum class Alignment : std::int32_t {
  bottom_right = FA_BOTTOM_RIGHT,  ///< query i at key i + N - M: the last query sees the last key
  top_left = FA_TOP_LEFT,          ///< query i at key i
};

/// With p the position of query i, key j is visible where p - left <= j <= p + right. Both bounds are
/// inclusive; -1 is unbounded; any other negative is an error.
struct Mask {
  std::int64_t left = -1;
  std::int64_t right = -1;
  Alignment alignment = Alignment::bottom_right;

  /// Every key.
  static constexpr Mask full() noexcept { return {}; }
  /// Keys up to the query's own position, bottom-right aligned: j <= i + N - M.
  static constexpr Mask causal() noexcept { return {-1, 0, Alignment::bottom_right}; }
  /// Keys up to the query's own position, top-left aligned: j <= i.
  static constexpr Mask causal_top_left() noexcept { return {-1, 0, Alignment::top_left}; }
  /// `left` keys before the query's position, its own, and `right` after it.
  static constexpr Mask window(std::int64_t left, std::int64_t right,
                               Alignment alignment = Alignment::bottom_right) noexcept {
    return {left, right, alignment};
  }
};

FLASHATTN_NAMESPACE_END
