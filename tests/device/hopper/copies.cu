/// Boxes that the copy engine loads and stores.
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/ptx/shared_address.cuh"
#include "kernels/device/ptx/stores.cuh"
#include "kernels/device/ptx/tma.cuh"
#include "kernels/device/tile/descriptor.cuh"
#include "tests/device/hopper/launch.hpp"
#include "tests/device/hopper/run.cuh"

namespace fa::test::hopper {
namespace {

using internal::box_offset;
using internal::kBoxColumns;
using internal::kBoxRowBytes;
namespace ptx = internal::ptx;

constexpr int kThreads = 128;
constexpr int kRowPairs = kBoxColumns / 2;

struct alignas(internal::kSwizzleAtomBytes) SharedBox {
  uint16_t box[kShownRows][kBoxColumns];
  uint64_t full;
};

__device__ ptx::Box box_at(const Corner& corner) {
  return {corner.column, corner.row, corner.head, corner.batch};
}

__global__ void __launch_bounds__(kThreads)
    load_kernel(const __grid_constant__ CUtensorMap map, int box_rows, Corner corner,
                uint16_t* gShown) {  // [kShownRows][kBoxColumns]
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedBox*>(shared_bytes);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kShownRows * kBoxColumns; i += kThreads) {
    s.box[i / kBoxColumns][i % kBoxColumns] = 0xffff;
  }
  ptx::fence_async_proxy();
  const uint32_t full = ptx::shared_address(&s.full);
  if (thread == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect_bytes(full, static_cast<uint32_t>(box_rows * kBoxRowBytes));
    ptx::tma_load(ptx::shared_address(s.box), map, box_at(corner), full);
  }
  ptx::mbarrier_wait(full, 0);
  for (int i = thread; i < kShownRows * kBoxColumns; i += kThreads) {
    const int row = i / kBoxColumns, column = i % kBoxColumns;
    gShown[i] =
        *reinterpret_cast<const uint16_t*>(shared_bytes + box_offset(row, column / 8) + column % 8 * 2);
  }
}

__global__ void __launch_bounds__(kThreads)
    store_kernel(const __grid_constant__ CUtensorMap map, int box_rows, Corner corner,
                 const uint32_t* gValues) {  // [box_rows][kRowPairs]
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t box = ptx::shared_address(shared_bytes);
  for (int i = thread; i < box_rows * kRowPairs; i += kThreads) {
    const int row = i / kRowPairs, pair = i % kRowPairs;
    ptx::store_shared(box + box_offset(row, pair / 4) + pair % 4 * 4, gValues[i]);
  }
  ptx::fence_async_proxy();
  __syncthreads();
  if (thread == 0) {
    ptx::tma_store(map, box_at(corner), box);
    ptx::tma_store_commit();
    ptx::tma_store_wait_read();
  }
}

CUtensorMap map_of(const Tensor& t, const void* data, int box_rows) {
  return tensor_map(Dtype::float16, data, t.stride, t.B, t.heads, t.rows, t.features, box_rows);
}

}  // namespace

std::vector<uint16_t> load_box(const Tensor& from, int box_rows, const Corner& corner) {
  const DeviceArray<uint16_t> data(from.memory);
  const DeviceArray<uint16_t> shown(size_t{kShownRows} * kBoxColumns);
  run<load_kernel>(1, kThreads, sizeof(SharedBox), map_of(from, data.data(), box_rows), box_rows, corner,
                   shown.data());
  return shown.get();
}

std::vector<uint16_t> store_box(const Tensor& to, int box_rows, const Corner& corner,
                                const std::vector<uint16_t>& values) {
  std::vector<uint32_t> pairs;
  for (size_t i = 0; i < values.size(); i += 2) pairs.push_back(values[i] | uint32_t{values[i + 1]} << 16);
  const DeviceArray<uint16_t> data(to.memory);
  const DeviceArray<uint32_t> device_pairs(pairs);
  run<store_kernel>(1, kThreads, sizeof(SharedBox), map_of(to, data.data(), box_rows), box_rows, corner,
                    static_cast<const uint32_t*>(device_pairs.data()));
  return data.get();
}

}  // namespace fa::test::hopper
