/// The tile in portable C++: where Highway is not at hand, and for processors older than its targets here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/cpu/tile.hpp"
#include "src/cpu/tile_macros.hpp"

namespace fa::internal::cpu {
namespace plain {
#include "src/cpu/vec_plain-inl.hpp"

#include "src/cpu/tile-inl.hpp"

#include "src/cpu/backward_tile-inl.hpp"
}  // namespace plain

const TileKernel& plain_kernel() {
  static constexpr TileKernel kernel{"plain", plain::run_tile, plain::run_query_tile, plain::run_key_tile};
  return kernel;
}

}  // namespace fa::internal::cpu
