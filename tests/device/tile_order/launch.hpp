/// The tile order's arithmetic as kernels do it, on the host and on a device: plain C++.
#pragma once

#include <vector>

#include "kernels/tile_order.hpp"

namespace fa::test::tile_order {

inline constexpr int kBlockM = 64;

enum class Where { host, device };

struct Division {
  int n;
  internal::Divisor by;
};

struct Tile {
  int query0, b, h, key_head;
};

/// The quotients, rounded down. Throws std::runtime_error on a CUDA error.
std::vector<int> divide(Where where, const std::vector<Division>& divisions);

/// The query tile of each block. Throws std::runtime_error on a CUDA error.
std::vector<Tile> tiles(Where where, const internal::TileOrder& order, const std::vector<int>& blocks);

}  // namespace fa::test::tile_order
