/// A warpgroup's 64 query rows in the registers of wgmma (introduced by V8). A warp has 16 of them, laid out
/// as mma.m16n8k16 has them (mma_rows.cuh); what is new is that products run while the warp goes on, so that
/// each step says what it starts and what it needs to be done.
#pragma once

#include "kernels/device/attention/mma_rows.cuh"
#include "kernels/device/ptx/pin.cuh"
#include "kernels/device/ptx/wgmma.cuh"
#include "kernels/device/tile/descriptor.cuh"

namespace fa::internal {

template <class Config>
struct WgmmaRows;

/// S becomes P, and l gets the lane's sums. A Config may have its own.
template <class Config>
__device__ void exponentiate_scores(WgmmaRows<Config>& rows) {
  rows.exponentiate();
}

template <class Config>
struct WgmmaRows : MmaRows<Config> {
  using Base = MmaRows<Config>;
  using T = typename Config::Element;
  static constexpr int kBlockN = Config::kBlockN;
  static constexpr int kHeadDimV = 8 * Base::kColumns;

  uint32_t P[Config::kKeyBlocks][4];  // the left operand of O += P V
  float rescale[2];                   // of O to the newest R
  bool grown;                         // R, in some row of the warp

  __device__ float (&scores())[kBlockN / 2] { return reinterpret_cast<float(&)[kBlockN / 2]>(this->S); }
  __device__ float (&output())[kHeadDimV / 2] { return reinterpret_cast<float(&)[kHeadDimV / 2]>(this->O); }

  /// Starts S = Q K^T, one group. q, k: descriptors of the warpgroup's rows of Q and of the key tile.
  __device__ void start_scores(uint32_t q, uint32_t k) {
    ptx::wgmma_fence();
#pragma unroll
    for (int d = 0; d < Config::kHeadDim; d += 16) {
      ptx::wgmma<T, kBlockN>(scores(), rows_descriptor<Config::kBlockM>(q, d), rows_descriptor<kBlockN>(k, d),
                             d != 0);
    }
    ptx::wgmma_commit();
  }

  /// Starts O += P V, one group. v: descriptor of the value tile.
  __device__ void start_output(uint32_t v) {
    ptx::pin(P);
    ptx::pin(output());
    ptx::wgmma_fence();
#pragma unroll
    for (int j = 0; j < Config::kKeyBlocks; ++j) {
      ptx::wgmma<T, kHeadDimV>(output(), P[j], columns_descriptor(v, 16 * j));
    }
    ptx::wgmma_commit();
  }

  /// S is there; at most kPending newer groups are not.
  template <int kPending>
  __device__ void wait_scores() {
    ptx::wgmma_wait<kPending>();
    ptx::pin(scores());
  }

  /// O is there, and P may be written.
  __device__ void wait_output() {
    ptx::pin(scores());  // the exponentials come before the wait, not after
    ptx::wgmma_wait<0>();
    ptx::pin(output());
  }

  /// The online softmax over one key tile: S becomes 2^(factor S - R) as in MmaRows, with O left to
  /// rescale_output(), for a product may own it.
  __device__ void softmax(float scale_log2) {
    bool large = false;
    grown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float R_new = this->next_reference(0, half, scale_log2);
      grown |= R_new > this->R[0][half];
      large |= Base::is_large(R_new);
      rescale[half] = ptx::ex2(this->R[0][half] - R_new);
      this->R[0][half] = R_new;
      this->l[0][half] *= rescale[half];
    }
    this->factor = scale_log2;
    if (__any_sync(kFullWarp, large)) {
      this->factor = 1.0f;
      this->scale_scores(scale_log2);
    }
    exponentiate_scores(*this);
  }

  __device__ void pack() {
#pragma unroll
    for (int j = 0; j < Config::kKeyBlocks; ++j) this->pack_probabilities(P[j], 0, j);
  }

  __device__ void rescale_output() {
    if (!__any_sync(kFullWarp, grown)) return;
#pragma unroll
    for (int c = 0; c < Base::kColumns; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) this->O[0][c][e] *= rescale[e / 2];
    }
  }
};

}  // namespace fa::internal
