/// The order of query tiles (kernels/tile_order.hpp): its divisions by multiplication, and that a grid's
/// blocks take every tile once. On the host, and on a device by the device's own instructions.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/device/tile_order/launch.hpp"

namespace fa::test {
namespace {

using internal::ForwardParams;
using internal::make_divisor;
using internal::make_tile_order;
using internal::TileOrder;
using tile_order::Division;
using tile_order::kBlockM;
using tile_order::Tile;
using tile_order::Where;

constexpr int kLargest = std::numeric_limits<int>::max();

bool no_device() {
  int count = 0;
  const bool none = cudaGetDeviceCount(&count) != cudaSuccess || count == 0;
  cudaGetLastError();
  return none;
}

class Order : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    if (GetParam() == Where::device && no_device()) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

std::vector<int> divisors() {
  std::vector<int> all(5000);
  std::iota(all.begin(), all.end(), 1);
  for (int bit = 12; bit < 31; ++bit) {
    for (const int near : {-1, 0, 1}) all.push_back((1 << bit) + near);
  }
  all.push_back(kLargest - 1);
  all.push_back(kLargest);
  return all;
}

// Where a quotient changes, both ends of the range, and some in between.
std::vector<int> numerators(int divisor, std::mt19937& random) {
  const int most = kLargest / divisor;
  std::uniform_int_distribution<int> any(0, kLargest), any_quotient(0, most);
  std::vector<int64_t> all = {0, kLargest - 1, kLargest};
  for (const int64_t quotient : {1, 2, most, any_quotient(random), any_quotient(random)}) {
    for (const int near : {-1, 0, 1}) all.push_back(quotient * divisor + near);
  }
  for (int n = 0; n < 4; ++n) all.push_back(any(random));
  std::erase_if(all, [](int64_t n) { return n < 0 || n > kLargest; });
  return {all.begin(), all.end()};
}

TEST_P(Order, DividesAsTheHostDoes) {
  std::mt19937 random(1);
  std::vector<Division> divisions;
  for (const int divisor : divisors()) {
    for (const int n : numerators(divisor, random)) divisions.push_back({n, make_divisor(divisor)});
  }
  const std::vector<int> quotients = tile_order::divide(GetParam(), divisions);
  for (size_t i = 0; i < divisions.size(); ++i) {
    const auto& [n, by] = divisions[i];
    ASSERT_EQ(quotients[i], n / by.value) << n << " / " << by.value;
  }
}

struct Sizes {
  int B, H, Hk, M, N, D, Dv;
  int64_t l2_bytes;
};

ForwardParams params_of(const Sizes& sizes) {
  ForwardParams p = {};
  p.B = sizes.B, p.H = sizes.H, p.Hk = sizes.Hk, p.group = sizes.H / sizes.Hk;
  p.M = sizes.M, p.N = sizes.N, p.D = sizes.D, p.Dv = sizes.Dv;
  return p;
}

int64_t blocks_of(const Sizes& sizes) {
  return (int64_t{sizes.M} + kBlockM - 1) / kBlockM * sizes.B * sizes.H;
}

std::string text(const Sizes& s) {
  return "B" + std::to_string(s.B) + " H" + std::to_string(s.H) + "/" + std::to_string(s.Hk) + " M" +
         std::to_string(s.M) + " N" + std::to_string(s.N) + " D" + std::to_string(s.D) + "/" +
         std::to_string(s.Dv) + " L2 " + std::to_string(s.l2_bytes);
}

constexpr Sizes kSmall[] = {
    {1, 1, 1, 1, 1, 64, 64, 1 << 20},           // one block
    {1, 1, 1, 1000, 1000, 64, 64, 1 << 20},     // one head
    {3, 5, 5, 129, 77, 40, 72, 1 << 20},        // one group
    {2, 6, 3, 200, 0, 64, 64, 1 << 20},         // no keys: one group
    {3, 7, 7, 300, 512, 64, 64, 800'000},       // groups of 3 heads of 21
    {1, 7, 7, 130, 1000, 128, 128, 3'500'000},  // 3, 3 and 1 heads
    {5, 11, 11, 65, 333, 96, 96, 3'000'000},    // 11 heads a group
    {2, 10, 2, 500, 2048, 128, 64, 2'000'000},  // 5 query heads on a key head, which is a group
    {3, 12, 4, 64, 999, 64, 64, 1'100'000},     // 6 heads a group
    {2, 9, 3, 777, 4096, 256, 256, 0},          // an unknown L2: one key head a group
};

TEST_P(Order, TakesEveryTileOnceLongestFirst) {
  int smaller_last_groups = 0, several_groups = 0;
  for (const Sizes& sizes : kSmall) {
    SCOPED_TRACE(text(sizes));
    const TileOrder order = make_tile_order(params_of(sizes), kBlockM, sizes.l2_bytes);
    std::vector<int> blocks(static_cast<size_t>(blocks_of(sizes)));
    std::iota(blocks.begin(), blocks.end(), 0);
    const std::vector<Tile> tiles = tile_order::tiles(GetParam(), order, blocks);

    std::set<std::tuple<int, int, int>> taken;
    for (size_t i = 0; i < tiles.size(); ++i) {
      const auto& [query0, b, h, key_head] = tiles[i];
      ASSERT_TRUE(query0 % kBlockM == 0 && query0 >= 0 && query0 < sizes.M) << "block " << i;
      ASSERT_TRUE(b >= 0 && b < sizes.B && h >= 0 && h < sizes.H) << "block " << i;
      ASSERT_EQ(key_head, h / (sizes.H / sizes.Hk)) << "block " << i;
      ASSERT_TRUE(taken.emplace(query0, b, h).second) << "block " << i;
      const bool same_group = i > 0 && static_cast<int>(i) % order.group_tiles.value != 0;
      ASSERT_TRUE(!same_group || query0 <= tiles[i - 1].query0) << "block " << i;
    }
    EXPECT_EQ(static_cast<int64_t>(taken.size()), blocks_of(sizes));
    several_groups += order.last_group > 0;
    smaller_last_groups += order.last_group_heads.value < order.group_heads.value;
  }
  EXPECT_GE(several_groups, 5);
  EXPECT_GE(smaller_last_groups, 1);
}

TEST_P(Order, AGroupFitsHalfOfL2) {
  for (const Sizes& sizes : kSmall) {
    const TileOrder order = make_tile_order(params_of(sizes), kBlockM, sizes.l2_bytes);
    const int on_key_head = sizes.H / sizes.Hk;
    const int64_t key_heads = (order.group_heads.value + on_key_head - 1) / on_key_head;
    EXPECT_TRUE(key_heads == 1 ||
                key_heads * sizes.N * (sizes.D + sizes.Dv) * int64_t{2} <= sizes.l2_bytes / 2)
        << text(sizes) << ": " << order.group_heads.value << " query heads";
  }
}

// Grids of almost 2^31 blocks: every factor of a block's index at its largest.
TEST_P(Order, HoldsInTheLargestGrids) {
  constexpr int64_t kL2 = 50 << 20;
  for (const Sizes& sizes : {Sizes{1, 1, 1, kLargest, 1, 64, 64, kL2}, Sizes{kLargest, 1, 1, 1, 1, 8, 8, kL2},
                             Sizes{1, kLargest, 1, 64, 1, 8, 8, kL2}, Sizes{46340, 46341, 1, 1, 1, 8, 8, kL2},
                             Sizes{4096, 128, 16, 64 * 4095, 4096, 128, 128, kL2},
                             Sizes{31, 127, 127, 64 * 545'000, 9999, 64, 64, kL2}}) {
    SCOPED_TRACE(text(sizes));
    const int64_t count = blocks_of(sizes);
    ASSERT_LE(count, kLargest);
    std::mt19937 random(2);
    std::uniform_int_distribution<int> any(0, static_cast<int>(count - 1));
    std::vector<int> blocks = {0, static_cast<int>(count - 1)};
    for (int n = 0; n < 1000; ++n) blocks.push_back(any(random));

    const TileOrder order = make_tile_order(params_of(sizes), kBlockM, sizes.l2_bytes);
    const std::vector<Tile> tiles = tile_order::tiles(GetParam(), order, blocks);
    const int64_t group_heads = order.group_heads.value;
    const int64_t query_tiles = (int64_t{sizes.M} + kBlockM - 1) / kBlockM;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int64_t group = blocks[i] / (group_heads * query_tiles);
      const int64_t in_group = blocks[i] % (group_heads * query_tiles);
      const int64_t heads = std::min(group_heads, int64_t{sizes.B} * sizes.H - group * group_heads);
      const int64_t head = group * group_heads + in_group % heads;
      ASSERT_EQ(tiles[i].query0, (query_tiles - 1 - in_group / heads) * kBlockM) << "block " << blocks[i];
      ASSERT_EQ(tiles[i].b, head / sizes.H) << "block " << blocks[i];
      ASSERT_EQ(tiles[i].h, head % sizes.H) << "block " << blocks[i];
      ASSERT_EQ(tiles[i].key_head, head % sizes.H / (sizes.H / sizes.Hk)) << "block " << blocks[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sides, Order, testing::Values(Where::host, Where::device),
                         [](const testing::TestParamInfo<Where>& c) {
                           return c.param == Where::host ? "host" : "device";
                         });

}  // namespace
}  // namespace fa::test
