/// A ring of stages in shared memory between a producer and its consumers, each stage with a barrier that
/// says it is full and one that says it is empty (ptx/mbarrier.cuh).
#pragma once

#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/ptx/shared_address.cuh"

namespace fa::internal {

template <int kStages>
struct PipelineBarriers {
  uint64_t full[kStages], empty[kStages];

  /// By one thread. The producer arrives once a stage, and each of `consumers` once.
  __device__ void init(int consumers) {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(ptx::shared_address(&full[stage]), 1);
      ptx::mbarrier_init(ptx::shared_address(&empty[stage]), consumers);
    }
  }
};

/// One side's place in the ring.
template <int kStages>
class Pipeline {
  const PipelineBarriers<kStages>& barriers_;
  int stage_ = 0;
  uint32_t parity_ = 0;  // of the phase that is next

  __device__ uint32_t full() const { return ptx::shared_address(&barriers_.full[stage_]); }
  __device__ uint32_t empty() const { return ptx::shared_address(&barriers_.empty[stage_]); }

 public:
  __device__ explicit Pipeline(const PipelineBarriers<kStages>& barriers) : barriers_(barriers) {}

  __device__ int stage() const { return stage_; }

  /// Sets the stage to what it is already, so that the compiler knows it.
  __device__ void is_at(int stage) { stage_ = stage; }

  __device__ void advance() {
    if (++stage_ == kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

  /// Waits until all consumers have released the stage, or nobody has filled it yet.
  __device__ void wait_empty() const { ptx::mbarrier_wait(empty(), parity_ ^ 1); }

  /// The producer: waits until the stage is empty, and announces `bytes` of copies. They count on the barrier
  /// that is returned.
  __device__ uint32_t fill(uint32_t bytes) const {
    wait_empty();
    ptx::mbarrier_arrive_expect_bytes(full(), bytes);
    return full();
  }

  /// A consumer's threads: wait until the stage is full.
  __device__ void wait_full() const { ptx::mbarrier_wait(full(), parity_); }

  /// One thread of a consumer whose threads have all read the stage.
  __device__ void release() const { ptx::mbarrier_arrive(empty()); }
};

}  // namespace fa::internal
