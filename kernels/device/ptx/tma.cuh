/// Tiles of a tensor between global and shared memory by the copy engine (sm_90). PTX ISA, "Data Movement and
/// Conversion Instructions: cp.async.bulk.tensor", "fence.proxy.async".
///
/// A tensor map names the tensor and the box that one instruction moves; coordinates are those of the box's
/// first element, the contiguous dimension first. Beyond the tensor's bounds loads give zeros and stores
/// write nothing, but for what completes the last 16 bytes of a row (seen on an H200).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fa::internal::ptx {

struct Box {
  int x0, x1, x2, x3;
};

/// Starts the load of a box; its bytes count on the barrier. By one thread; `shared` is a multiple of 128.
__device__ inline void tma_load(uint32_t shared, const CUtensorMap& map, Box box, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5}], [%6];" ::"r"(shared),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(box.x0), "r"(box.x1), "r"(box.x2), "r"(box.x3), "r"(barrier)
      : "memory");
}

/// Starts the store of a box. By one thread, after fence_async_proxy() by those that wrote `shared`.
__device__ inline void tma_store(const CUtensorMap& map, Box box, uint32_t shared) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          reinterpret_cast<uint64_t>(&map)),
      "r"(box.x0), "r"(box.x1), "r"(box.x2), "r"(box.x3), "r"(shared)
      : "memory");
}

/// Makes one group of the stores that the thread has started since its last.
__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until the thread's stores have read shared memory: it may be overwritten.
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// What this thread wrote to shared memory by ordinary stores becomes visible to the copy engine and to
/// wgmma, once a barrier has followed.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace fa::internal::ptx
