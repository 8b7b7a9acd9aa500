#include "tests/device/tile_order/launch.hpp"

#include <cuda_runtime.h>

#include "kernels/device/attention/query_tile.cuh"
#include "tests/device/device_array.hpp"

namespace fa::test::tile_order {
namespace {

struct Divide {
  __host__ __device__ int operator()(const Division& division) const {
    return internal::divide(division.n, division.by);
  }
};

struct FindTile {
  internal::TileOrder order;
  __host__ __device__ Tile operator()(int block) const {
    const auto [query0, b, h, key_head] = internal::longest_first_in_groups<kBlockM>(order, block);
    return {query0, b, h, key_head};
  }
};

template <class F, class From, class To>
__global__ void apply_kernel(F f, const From* from, To* to, size_t count) {  // from, to: [count]
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = f(from[i]);
}

template <class To, class F, class From>
std::vector<To> apply(Where where, F f, const std::vector<From>& from) {
  if (where == Where::host) {
    std::vector<To> to;
    for (const From& x : from) to.push_back(f(x));
    return to;
  }
  constexpr unsigned kThreads = 256;
  const DeviceArray<From> device_from(from);
  const DeviceArray<To> device_to(from.size());
  const auto blocks = static_cast<unsigned>((from.size() + kThreads - 1) / kThreads);
  apply_kernel<<<blocks, kThreads>>>(f, device_from.data(), device_to.data(), from.size());
  check(cudaGetLastError());
  return device_to.get();
}

}  // namespace

std::vector<int> divide(Where where, const std::vector<Division>& divisions) {
  return apply<int>(where, Divide{}, divisions);
}

std::vector<Tile> tiles(Where where, const internal::TileOrder& order, const std::vector<int>& blocks) {
  return apply<Tile>(where, FindTile{order}, blocks);
}

}  // namespace fa::test::tile_order
