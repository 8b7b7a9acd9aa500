/// The Hopper blocks on a device: the copy engine's boxes, barriers, the ring of stages, wgmma on tiles that
/// the copy engine loaded; and V8's walk over query tiles, whose numbers are checked on the host too.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/device/hopper/launch.hpp"

namespace fa::test {
namespace {

using hopper::Corner;
using hopper::kFeatures;
using hopper::kItemRows;
using hopper::kProductRows;
using hopper::kReaders;
using hopper::Rounds;
using hopper::Tensor;
using hopper::Visit;
using internal::ForwardParams;

constexpr int kBoxColumns = 64;

// Empty: there is one.
std::string no_hopper_device() {
  int major = 0;
  const bool found = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess;
  cudaGetLastError();
  if (!found) return "skipped: no CUDA device";
  return major == 9 ? "" : "skipped: the device's compute capability is not 9.0";
}

class Hopper : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_hopper_device(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

// ---- copies ------------------------------------------------------------------------------------------

struct Shape {
  int B, heads, rows, features;
};

int64_t offset(const Tensor& t, int b, int head, int row, int feature) {
  return b * t.stride.batch + head * t.stride.head + row * t.stride.seq + feature;
}

/// Rows of `pitch` elements and gaps between heads and batches; each element of the memory has its own bits.
Tensor numbered(const Shape& shape, int pitch) {
  Tensor t = {{}, {}, shape.B, shape.heads, shape.rows, shape.features};
  t.stride.seq = pitch;
  t.stride.head = t.stride.seq * shape.rows + 24;
  t.stride.batch = t.stride.head * shape.heads + 40;
  t.memory.resize(static_cast<size_t>(t.stride.batch * shape.B));
  for (size_t i = 0; i < t.memory.size(); ++i) t.memory[i] = static_cast<uint16_t>(1 + i % 65521);
  return t;
}

struct BoxCase {
  Shape shape;
  int pitch, box_rows;
  Corner corner;
};

// Rows of any length. Boxes inside, beyond the last row, beyond the last feature, beyond both, and outside
// altogether.
constexpr BoxCase kBoxes[] = {
    {{1, 1, 64, 64}, 64, 64, {0, 0, 0, 0}},       {{1, 2, 70, 61}, 64, 64, {0, 0, 1, 0}},
    {{2, 2, 70, 251}, 256, 64, {192, 64, 1, 1}},  {{2, 3, 200, 128}, 128, 128, {64, 64, 2, 1}},
    {{2, 3, 150, 64}, 64, 128, {0, 128, 1, 1}},   {{2, 3, 193, 72}, 80, 192, {64, 192, 2, 0}},
    {{2, 3, 100, 40}, 48, 112, {0, 0, 1, 1}},     {{2, 3, 77, 104}, 104, 80, {64, 0, 0, 1}},
    {{1, 2, 130, 200}, 208, 64, {192, 64, 1, 0}}, {{1, 2, 90, 8}, 8, 64, {0, 64, 0, 0}},
    {{1, 2, 64, 72}, 72, 64, {64, 64, 1, 0}},     {{1, 2, 64, 64}, 64, 64, {64, 0, 1, 0}},
};

TEST_F(Hopper, ALoadFillsItsBoxWithZerosBeyondTheTensor) {
  for (const auto& [shape, pitch, box_rows, corner] : kBoxes) {
    SCOPED_TRACE("rows " + std::to_string(shape.rows) + ", features " + std::to_string(shape.features) +
                 ", box at row " + std::to_string(corner.row) + ", column " + std::to_string(corner.column));
    const Tensor t = numbered(shape, pitch);
    const std::vector<uint16_t> shown = hopper::load_box(t, box_rows, corner);
    for (int r = 0; r < hopper::kShownRows; ++r) {
      for (int c = 0; c < kBoxColumns; ++c) {
        const int row = corner.row + r, column = corner.column + c;
        uint16_t want = 0xffff;
        if (r < box_rows) want = 0;
        if (r < box_rows && row < t.rows && column < t.features) {
          want = t.memory[static_cast<size_t>(offset(t, corner.batch, corner.head, row, column))];
        }
        ASSERT_EQ(shown[static_cast<size_t>(r * kBoxColumns + c)], want) << "row " << r << ", column " << c;
      }
    }
  }
}

// A dimension of one index takes no step, whatever its stride.
TEST_F(Hopper, AMapTakesAnyStrideOfOneIndex) {
  for (const int64_t stride : {int64_t{0}, int64_t{3}, int64_t{1} << 50}) {
    Tensor t = numbered({1, 1, 1, 64}, 64);
    t.stride = {stride, stride, stride};
    const std::vector<uint16_t> shown = hopper::load_box(t, 64, {0, 0, 0, 0});
    EXPECT_TRUE(std::equal(t.memory.begin(), t.memory.begin() + kBoxColumns, shown.begin()));
    EXPECT_EQ(shown[kBoxColumns], 0);
  }
}

// What completes the last 16 bytes of a row is stored too: a map for stores ends with whole 16 bytes.
TEST_F(Hopper, AStoreStopsBehindTheLast16BytesOfARow) {
  for (const auto& [shape, pitch, box_rows, corner] : kBoxes) {
    SCOPED_TRACE("rows " + std::to_string(shape.rows) + ", features " + std::to_string(shape.features) +
                 ", box at row " + std::to_string(corner.row) + ", column " + std::to_string(corner.column));
    Tensor t = numbered(shape, pitch);
    std::vector<uint16_t> values(static_cast<size_t>(box_rows * kBoxColumns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(20000 + i);
    const std::vector<uint16_t> got = hopper::store_box(t, box_rows, corner, values);
    for (int r = 0; r < box_rows && corner.row + r < t.rows; ++r) {
      for (int c = 0; c < kBoxColumns && corner.column + c < (t.features + 7) / 8 * 8; ++c) {
        const int64_t at = offset(t, corner.batch, corner.head, corner.row + r, corner.column + c);
        t.memory[static_cast<size_t>(at)] = values[static_cast<size_t>(r * kBoxColumns + c)];
      }
    }
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], t.memory[i]) << "element " << i;
  }
}

// ---- barriers ----------------------------------------------------------------------------------------

TEST_F(Hopper, APhaseEndsAfterItsArrivalsAndTheirBytes) {
  EXPECT_EQ(hopper::phases(), (std::vector<int>{1, 0, 0, 1, 0, 0, 1, 0}));
}

TEST_F(Hopper, ARingKeepsItsOrder) {
  constexpr int kItems = 1000;
  const std::vector<uint16_t> read = hopper::exchange(kItems);
  for (int reader = 0; reader < kReaders; ++reader) {
    for (int n = 0; n < kItems * kItemRows; ++n) {
      ASSERT_EQ(read[static_cast<size_t>(reader * kItems * kItemRows + n)], n) << "reader " << reader;
    }
  }
}

TEST_F(Hopper, WarpgroupsTakeTurns) {
  constexpr int kTurns = 200;
  for (const int warpgroups : {2, 3}) {
    const std::vector<int> order = hopper::take_turns(warpgroups, kTurns);
    for (int i = 0; i < warpgroups * kTurns; ++i) {
      ASSERT_EQ(order[static_cast<size_t>(i)], i % warpgroups) << "turn " << i << " of " << warpgroups;
    }
  }
}

// ---- products ----------------------------------------------------------------------------------------

/// A matrix of small integers, whose products and sums are exact in every type.
struct Integers {
  std::vector<int> values;
  std::vector<uint16_t> bits;

  Integers(Dtype dtype, int rows, int columns, unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < rows * columns; ++i) {
      const int x = static_cast<int>(random() % 9) - 4;
      values.push_back(x);
      const auto value = static_cast<float>(x);
      bits.push_back(dtype == Dtype::float16 ? half(value).bits : bfloat16(value).bits);
    }
  }
};

class HopperProducts : public testing::TestWithParam<std::tuple<Dtype, int>> {
 protected:
  void SetUp() override {
    if (const std::string reason = no_hopper_device(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

class HopperScores : public HopperProducts {};
class HopperOutput : public HopperProducts {};

TEST_P(HopperScores, AreTheHosts) {
  const auto [dtype, keys] = GetParam();
  const Integers q(dtype, kProductRows, kFeatures, 1), k(dtype, keys, kFeatures, 2);
  const std::vector<float> got = hopper::scores(dtype, keys, q.bits, k.bits);
  for (int row = 0; row < kProductRows; ++row) {
    for (int key = 0; key < keys; ++key) {
      int want = 0;
      for (int d = 0; d < kFeatures; ++d) {
        want += q.values[static_cast<size_t>(row * kFeatures + d)] *
                k.values[static_cast<size_t>(key * kFeatures + d)];
      }
      ASSERT_EQ(got[static_cast<size_t>(row * keys + key)], static_cast<float>(want))
          << "row " << row << ", key " << key;
    }
  }
}

TEST_P(HopperOutput, IsTheHosts) {
  const auto [dtype, features] = GetParam();
  const int keys = hopper::keys_beside(features);
  const Integers p(dtype, kProductRows, keys, 3), v(dtype, keys, features, 4);
  const std::vector<float> got = hopper::output(dtype, features, p.bits, v.bits);
  for (int row = 0; row < kProductRows; ++row) {
    for (int d = 0; d < features; ++d) {
      int want = 3;
      for (int key = 0; key < keys; ++key) {
        want += p.values[static_cast<size_t>(row * keys + key)] *
                v.values[static_cast<size_t>(key * features + d)];
      }
      ASSERT_EQ(got[static_cast<size_t>(row * features + d)], static_cast<float>(want))
          << "row " << row << ", feature " << d;
    }
  }
}

std::string product_name(const testing::TestParamInfo<std::tuple<Dtype, int>>& of) {
  return std::string(name_of(std::get<0>(of.param))) + "_n" + std::to_string(std::get<1>(of.param));
}

INSTANTIATE_TEST_SUITE_P(Widths, HopperScores,
                         testing::Combine(testing::Values(Dtype::float16, Dtype::bfloat16),
                                          testing::Values(64, 80, 112, 128)),
                         product_name);
INSTANTIATE_TEST_SUITE_P(Widths, HopperOutput,
                         testing::Combine(testing::Values(Dtype::float16, Dtype::bfloat16),
                                          testing::Values(64, 96, 128, 192, 256)),
                         product_name);

// ---- V8's order of query tiles -----------------------------------------------------------------------

struct Walked {
  int B, H, M, block_m, blocks;
  bool causal;
};

std::string text(const Walked& w) {
  return "B" + std::to_string(w.B) + " H" + std::to_string(w.H) + " M" + std::to_string(w.M) + ", tiles of " +
         std::to_string(w.block_m) + ", " + std::to_string(w.blocks) + " blocks" +
         (w.causal ? ", causal" : "");
}

std::vector<Walked> walks() {
  std::vector<Walked> all;
  for (const int block_m : {128, 192, 256}) {
    for (const int blocks : {1, 2, 7, 132}) {
      for (const auto& [B, H, M] : {std::tuple{1, 1, 1},
                                    {1, 1, 5000},
                                    {1, 7, 129},
                                    {3, 5, 1000},
                                    {5, 1, 777},
                                    {3, 37, 2049},
                                    {1, 131, 385},
                                    {7, 19, 100},
                                    {1, 3, 40000},
                                    {1, 32, 20480},
                                    {2, 16, 12288},
                                    {1, 16, 16384},
                                    {4, 16, 4096}}) {
        for (const bool causal : {false, true}) all.push_back({B, H, M, block_m, blocks, causal});
      }
    }
  }
  return all;
}

ForwardParams params_of(const Walked& w) {
  ForwardParams p = {};
  p.B = w.B, p.H = w.H, p.Hk = w.H, p.group = 1, p.M = w.M, p.N = w.M;
  p.window_lo = -w.M, p.window_hi = w.causal ? 0 : w.M;
  return p;
}

// Rows of the first query tile that lie before row 0: 64 at a time, until the last tile has less than 64 to
// spare.
int rows_ahead(const Walked& w) {
  int rows = w.M;
  while (rows % 64 != 0) ++rows;
  int ahead = 0;
  while ((rows + ahead) % w.block_m != 0) ahead += 64;
  return ahead;
}

// What the walk is to do, by division: round after round, forth and back over the blocks, every second group
// back and forth; in a group of heads the last tile of each head comes first.
std::vector<std::vector<Visit>> expected_walk(const Walked& w) {
  const Rounds order = hopper::make_rounds(params_of(w), w.block_m, w.blocks);
  std::vector<std::vector<Visit>> visits(static_cast<size_t>(w.blocks));
  for (int round = 0; round < order.groups * order.rounds; ++round) {
    const int group = round / order.rounds;
    const int heads = group + 1 == order.groups ? order.last_group_heads : order.group_heads;
    for (int block = 0; block < w.blocks; ++block) {
      const int round_of_group = round % order.rounds;
      const int place = (round_of_group + group) % 2 == 0 ? block : w.blocks - 1 - block;
      const int i = round_of_group * w.blocks + place;
      const int tile = i / heads;
      if (tile >= order.query_tiles) continue;
      const int head = group * order.group_heads + i % heads;
      visits[static_cast<size_t>(block)].push_back(
          {(order.query_tiles - 1 - tile) * w.block_m - rows_ahead(w), head / w.H, head % w.H});
    }
  }
  return visits;
}

void expect_every_tile_once(const Walked& w, const std::vector<std::vector<Visit>>& visits) {
  std::set<std::tuple<int, int, int>> taken;
  for (const std::vector<Visit>& of_block : visits) {
    for (const auto& [query0, b, h] : of_block) {
      ASSERT_EQ((query0 + rows_ahead(w)) % w.block_m, 0) << query0;
      ASSERT_TRUE(query0 > -w.block_m && query0 < w.M) << query0;
      ASSERT_TRUE(b >= 0 && b < w.B && h >= 0 && h < w.H) << b << ", " << h;
      ASSERT_TRUE(taken.emplace(query0, b, h).second) << query0 << " of " << b << ", " << h << " comes twice";
    }
  }
  const size_t query_tiles = static_cast<size_t>((w.M + w.block_m - 1) / w.block_m);
  EXPECT_EQ(taken.size(), query_tiles * static_cast<size_t>(w.B * w.H));
}

TEST(RoundOrder, TakesEveryTileOnce) {
  int several_groups = 0, smaller_last_groups = 0, several_rounds = 0;
  for (const Walked& w : walks()) {
    SCOPED_TRACE(text(w));
    expect_every_tile_once(w, expected_walk(w));
    const Rounds order = hopper::make_rounds(params_of(w), w.block_m, w.blocks);
    several_groups += order.groups > 1;
    smaller_last_groups += order.last_group_heads < order.group_heads;
    several_rounds += order.rounds > 1;
  }
  EXPECT_GE(several_groups, 16);
  EXPECT_GE(smaller_last_groups, 8);
  EXPECT_GE(several_rounds, 16);
}

// Below a diagonal, where a tile's cost grows with its place: no block of an H200's 132 has more than one
// longest tile above the mean, nor, of more than four rounds, more than 7%.
TEST(RoundOrder, SharesTheWork) {
  int long_plans = 0;
  for (const Walked& w : walks()) {
    if (w.blocks != 132 || !w.causal) continue;
    SCOPED_TRACE(text(w));
    int64_t all = 0, most = 0;
    for (const std::vector<Visit>& of_block : expected_walk(w)) {
      int64_t cost = 0;
      for (const Visit& visit : of_block) cost += visit.query0 + w.block_m;  // keys
      all += cost;
      most = std::max(most, cost);
    }
    EXPECT_LE(most, all / w.blocks + w.M + 63);
    if (w.B * w.H * ((w.M + w.block_m - 1) / w.block_m) > 4 * w.blocks) {
      EXPECT_LE(100 * most * w.blocks, 107 * all);
      ++long_plans;
    }
  }
  EXPECT_GE(long_plans, 15);
}

// Problems tall_tiles and short_tile of tests/forward/problems.txt without a window, some of the measured
// ones that the costs are fitted to, and few rows: which tile the launch takes on an H200's 132
// multiprocessors.
TEST(TileChoice, TakesTheTileThatEndsFirst) {
  const struct {
    int heads, M, N, head_dim;
    bool causal;
    int block_m;
  } problems[] = {{67, 385, 385, 64, false, 192},     {67, 385, 700, 64, false, 192},
                  {66, 485, 485, 64, false, 256},     {132, 500, 500, 64, true, 256},
                  {44, 576, 576, 128, false, 192},    {67, 385, 385, 128, false, 192},
                  {132, 576, 576, 128, true, 192},    {67, 385, 385, 96, false, 192},
                  {48, 512, 512, 64, false, 256},     {48, 512, 512, 64, true, 192},
                  {48, 1024, 1024, 64, false, 192},   {48, 1024, 1024, 64, true, 256},
                  {48, 2048, 2048, 64, false, 192},   {48, 2048, 2048, 64, true, 192},
                  {1024, 512, 512, 64, true, 256},    {256, 2048, 2048, 64, true, 256},
                  {32, 16384, 16384, 64, true, 192},  {128, 2048, 2048, 128, true, 192},
                  {256, 1024, 1024, 128, true, 192},  {66, 400, 200, 64, false, 256},
                  {33, 800, 100, 64, false, 256},     {132, 640, 100, 64, false, 256},
                  {132, 400, 400, 128, true, 192},    {132, 400, 90, 128, false, 192},
                  {132, 400, 300, 96, false, 192},    {264, 560, 300, 64, true, 256},
                  {256, 1024, 1024, 128, false, 128}, {8, 64, 100, 128, false, 128},
                  {8, 33, 8192, 64, false, 128},      {2, 1, 300, 96, false, 128}};
  for (const auto& [heads, M, N, head_dim, causal, block_m] : problems) {
    ForwardParams p = {};
    p.B = 1, p.H = p.Hk = heads, p.group = 1, p.M = M, p.N = N;
    p.window_lo = -M, p.window_hi = causal ? N - M : N;
    EXPECT_EQ(hopper::fastest_block_m(p, head_dim, 132), block_m)
        << "H" << heads << " M" << M << " N" << N << " D" << head_dim << (causal ? " causal" : "");
  }
}

// Of a window with a left side most tiles see the same: groups are one round.
TEST(RoundOrder, TakesSlidingWindowsAsTheSame) {
  ForwardParams p = params_of({4, 16, 8192, 128, 132, true});
  p.window_lo = -1024;
  const Rounds order = hopper::make_rounds(p, 128, 132);
  EXPECT_EQ(order.rounds, 1);
}

TEST_F(Hopper, ABlockWalksItsTilesInOrder) {
  for (const Walked& w : walks()) {
    SCOPED_TRACE(text(w));
    const std::vector<std::vector<Visit>> want = expected_walk(w);
    size_t most = 1;
    for (const std::vector<Visit>& of_block : want) most = std::max(most, of_block.size());
    const auto got = hopper::walk(params_of(w), w.block_m, w.blocks, static_cast<int>(most));
    expect_every_tile_once(w, got);
    EXPECT_TRUE(got == want);
  }
}

}  // namespace
}  // namespace fa::test
