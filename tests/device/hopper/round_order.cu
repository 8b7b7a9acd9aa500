/// V8's walk over query tiles.
#include <algorithm>

#include "kernels/v8_hopper/kernel.cuh"
#include "tests/device/hopper/launch.hpp"
#include "tests/device/hopper/run.cuh"

namespace fa::test::hopper {
namespace {

namespace v8 = internal::v8;

template <class Config>
__global__ void walk_kernel(internal::ForwardParams p, v8::RoundOrder order, int most,
                            Visit* gVisits,  // [blocks][most]
                            int* gCounts) {  // [blocks]
  v8::Walk<Config> walk(p, order);
  int count = 0;
  while (walk.next()) {
    if (count < most) {
      gVisits[static_cast<int>(blockIdx.x) * most + count] = {walk.query0, walk.b(), walk.h()};
    }
    ++count;
  }
  gCounts[blockIdx.x] = count;
}

template <class... ChoiceTypes>
int fastest_block_m(v8::Choices<ChoiceTypes...>, const internal::ForwardParams& p, int multiprocessors) {
  const int block_m[] = {ChoiceTypes::Config::kBlockM...};
  return block_m[v8::fastest_choice(v8::Choices<ChoiceTypes...>{}, p, multiprocessors)];
}

}  // namespace

int fastest_block_m(const internal::ForwardParams& p, int head_dim, int multiprocessors) {
  if (head_dim == 64) return fastest_block_m(v8::Tiles<__half, 64, 64>{}, p, multiprocessors);
  if (head_dim == 96) return fastest_block_m(v8::Tiles<__half, 96, 96>{}, p, multiprocessors);
  return fastest_block_m(v8::Tiles<__half, 128, 128>{}, p, multiprocessors);
}

Rounds make_rounds(const internal::ForwardParams& p, int block_m, int blocks) {
  const v8::RoundOrder order = v8::make_round_order(p, block_m, blocks);
  return {order.query_tiles, order.groups, order.rounds.value, order.group_heads.value,
          order.last_group_heads.value};
}

std::vector<std::vector<Visit>> walk(const internal::ForwardParams& p, int block_m, int blocks, int most) {
  const DeviceArray<Visit> visits(static_cast<size_t>(blocks) * static_cast<size_t>(most));
  const DeviceArray<int> counts(static_cast<size_t>(blocks));
  const v8::RoundOrder order = v8::make_round_order(p, block_m, blocks);
  const auto run_walk = [&](auto config) {
    using Config = decltype(config);
    run<walk_kernel<Config>>(blocks, 1, 0, p, order, most, visits.data(), counts.data());
  };
  if (block_m == 128) run_walk(v8::Config<__half, 64, 64, 128, 128>{});
  if (block_m == 192) run_walk(v8::Config<__half, 64, 64, 192, 128>{});
  if (block_m == 256) run_walk(v8::Config<__half, 64, 64, 256, 64>{});
  const std::vector<Visit> all = visits.get();
  std::vector<std::vector<Visit>> of_blocks;
  auto first = all.begin();
  for (const int count : counts.get()) {
    of_blocks.emplace_back(first, first + std::min(count, most));
    of_blocks.back().resize(static_cast<size_t>(count), {-1, -1, -1});
    first += most;
  }
  return of_blocks;
}

}  // namespace fa::test::hopper
