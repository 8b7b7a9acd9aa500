/// Barriers: phases, a ring of stages, and turns.
#include <numeric>

#include "kernels/device/ptx/named_barrier.cuh"
#include "kernels/device/ptx/tma.cuh"
#include "kernels/device/tile/descriptor.cuh"
#include "kernels/device/tile/pipeline.cuh"
#include "tests/device/hopper/launch.hpp"
#include "tests/device/hopper/run.cuh"

namespace fa::test::hopper {
namespace {

using internal::kBoxColumns;
using internal::kBoxRowBytes;
namespace ptx = internal::ptx;

constexpr uint32_t kItemBytes = kItemRows * kBoxRowBytes;
constexpr int kStages = 2;

struct alignas(internal::kSwizzleAtomBytes) SharedItem {
  uint16_t item[kItemRows][kBoxColumns];
  uint64_t barrier;
};

__global__ void phases_kernel(const __grid_constant__ CUtensorMap map, int* gEnded) {  // [8], one thread
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedItem*>(shared_bytes);
  const uint32_t barrier = ptx::shared_address(&s.barrier);
  const auto ended = [&](uint32_t parity) { return ptx::mbarrier_try_wait(barrier, parity) ? 1 : 0; };
  ptx::mbarrier_init(barrier, 2);
  ptx::fence_mbarrier_init();
  gEnded[0] = ended(1);
  gEnded[1] = ended(0);
  ptx::mbarrier_arrive(barrier);
  gEnded[2] = ended(0);
  ptx::mbarrier_arrive(barrier);
  gEnded[3] = ended(0);
  gEnded[4] = ended(1);
  ptx::mbarrier_arrive_expect_bytes(barrier, kItemBytes);
  ptx::mbarrier_arrive(barrier);
  gEnded[5] = ended(1);
  ptx::tma_load(ptx::shared_address(s.item), map, {0, 0, 0, 0}, barrier);
  ptx::mbarrier_wait(barrier, 1);
  gEnded[6] = ended(1);
  gEnded[7] = ended(0);
}

struct alignas(internal::kSwizzleAtomBytes) SharedRing {
  uint16_t items[kStages][kItemRows][kBoxColumns];
  internal::PipelineBarriers<kStages> barriers;
};

enum Barrier : int { kRead = 1, kTurn = 1 };  // each followed by those of the other warpgroups

__global__ void __launch_bounds__(128 * (1 + kReaders))
    exchange_kernel(const __grid_constant__ CUtensorMap map, int items,
                    uint16_t* gRead) {  // [kReaders][items][kItemRows]
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedRing*>(shared_bytes);
  if (threadIdx.x == 0) {
    s.barriers.init(kReaders);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  internal::Pipeline<kStages> pipeline(s.barriers);
  if (threadIdx.x < 128) {
    if (threadIdx.x != 0) return;
    for (int item = 0; item < items; ++item) {
      if (item % 7 == 3) __nanosleep(2000);
      const uint32_t full = pipeline.fill(kItemBytes);
      ptx::tma_load(ptx::shared_address(s.items[pipeline.stage()]), map, {0, item * kItemRows, 0, 0}, full);
      pipeline.advance();
    }
    return;
  }
  const int reader = static_cast<int>(threadIdx.x) / 128 - 1;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  for (int item = 0; item < items; ++item) {
    pipeline.wait_full();
    // A producer that did not wait for this reader would have overwritten the stage by now.
    if ((item + 2 * reader) % 5 == 0) __nanosleep(2000);
    if (thread < kItemRows) {
      const int chunk = internal::box_offset(thread, 0) % kBoxRowBytes / 16;
      gRead[(reader * items + item) * kItemRows + thread] = s.items[pipeline.stage()][thread][8 * chunk];
    }
    ptx::barrier_sync(kRead + reader, 128);
    if (thread == 0) pipeline.release();
    pipeline.advance();
  }
}

template <int kWarpgroups>
__global__ void __launch_bounds__(128 * kWarpgroups)
    turns_kernel(int turns, int* gOrder) {  // [kWarpgroups * turns]
  __shared__ int taken;
  if (threadIdx.x == 0) taken = 0;
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
  if (warpgroup == 0) ptx::barrier_arrive(kTurn, 256);
  for (int turn = 0; turn < turns; ++turn) {
    if ((turn + warpgroup) % 3 == 0) __nanosleep(1000);
    ptx::barrier_sync(kTurn + warpgroup, 256);
    if (threadIdx.x % 128 == 0) gOrder[taken++] = warpgroup;
    ptx::barrier_arrive(kTurn + next, 256);
  }
}

}  // namespace

std::vector<int> phases() {
  const DeviceArray<uint16_t> item(size_t{kItemRows} * kBoxColumns);
  const DeviceArray<int> ended(8);
  run<phases_kernel>(1, 1, sizeof(SharedItem),
                     matrix_map(Dtype::float16, item.data(), kItemRows, kBoxColumns, kItemRows),
                     ended.data());
  return ended.get();
}

std::vector<uint16_t> exchange(int items) {
  // Number n is the first element of row n.
  std::vector<uint16_t> rows(size_t{kItemRows} * static_cast<size_t>(items) * kBoxColumns);
  for (size_t i = 0; i < rows.size(); i += kBoxColumns) rows[i] = static_cast<uint16_t>(i / kBoxColumns);
  const DeviceArray<uint16_t> data(rows);
  const DeviceArray<uint16_t> read(size_t{kReaders} * static_cast<size_t>(items) * kItemRows);
  run<exchange_kernel>(1, 128 * (1 + kReaders), sizeof(SharedRing),
                       matrix_map(Dtype::float16, data.data(), items * kItemRows, kBoxColumns, kItemRows),
                       items, read.data());
  return read.get();
}

std::vector<int> take_turns(int warpgroups, int turns) {
  const DeviceArray<int> order(static_cast<size_t>(warpgroups * turns));
  if (warpgroups == 2) {
    run<turns_kernel<2>>(1, 256, 0, turns, order.data());
  } else {
    run<turns_kernel<3>>(1, 384, 0, turns, order.data());
  }
  return order.get();
}

}  // namespace fa::test::hopper
