// V6 with half of its softmax taken back, and with ideas that the published ladder (README, "Credits") tried
// and dropped. Code that a variant has of its own is an overload for its Config, which forward_kernel finds
// where it is instantiated.
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/ablations.hpp"
#include "kernels/launch.hpp"
#include "kernels/v6_fast_softmax/kernel.cuh"

namespace fa::internal::v6 {

struct ExactExp : Config<__half> {
  struct Softmax : FastSoftmax {
    static __device__ float exp(float x) { return PlainSoftmax::exp(x); }
  };
};

struct TreeReductions : Config<__half> {
  struct Softmax : PlainSoftmax {
    static __device__ float exp(float x) { return FastSoftmax::exp(x); }
  };
};

struct FourBlocks : Config<__half> {
  static constexpr int kBlocksPerMultiprocessor = 4;
};

// ---- deferred scaling: O = rescale O + P V, one FMA where P V is added ------------------------------------

struct DeferredScaling : Config<__half> {};

template <>
struct Rows<DeferredScaling> : WarpRows<DeferredScaling::kRowsPerWarp, DeferredScaling::kColumnsPerLane> {
  float factor[DeferredScaling::kRowsPerWarp];  // what O is still to be multiplied by

  __device__ void rescale(int i, float by) { factor[i] = by; }
};

__device__ inline void tile_output(SharedTiles<DeferredScaling>& s, int row0, Rows<DeferredScaling>& rows) {
  using Config = DeferredScaling;
  auto& scratch = s.scratch[threadIdx.x / 32];
#pragma unroll
  for (int c = 0; c < Config::kColumnsPerLane; ++c) {
    multiply_8x32<Config::kBlockN, nvcuda::wmma::row_major, Config::kPitchP, Config::kPitchKV,
                  Config::kPitchScratch>(s.P[row0], &s.KV[0][32 * c], scratch[0]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
      rows.O[i][c] = fmaf(rows.factor[i], rows.O[i][c], scratch[i][threadIdx.x % 32]);
    }
    __syncwarp();  // the scratch may be written again
  }
}

// ---- two accumulators: both halves of the columns in one pass, each fragment of P loaded once -------------

struct TwoAccumulators : Config<__half> {};

__device__ inline void tile_output(SharedTiles<TwoAccumulators>& s, int row0, Rows<TwoAccumulators>& rows) {
  namespace wmma = nvcuda::wmma;
  using Config = TwoAccumulators;
  using T = Config::Element;
  wmma::fragment<wmma::accumulator, 8, 32, 16, float> PV[Config::kColumnsPerLane];
#pragma unroll
  for (int c = 0; c < Config::kColumnsPerLane; ++c) wmma::fill_fragment(PV[c], 0.0f);
#pragma unroll
  for (int key = 0; key < Config::kBlockN; key += 16) {
    wmma::fragment<wmma::matrix_a, 8, 32, 16, T, wmma::row_major> P;
    wmma::load_matrix_sync(P, &s.P[row0][key], Config::kPitchP);
#pragma unroll
    for (int c = 0; c < Config::kColumnsPerLane; ++c) {
      wmma::fragment<wmma::matrix_b, 8, 32, 16, T, wmma::row_major> V;
      wmma::load_matrix_sync(V, &s.KV[key][32 * c], Config::kPitchKV);
      wmma::mma_sync(PV[c], P, V, PV[c]);
    }
  }
  auto& scratch = s.scratch[threadIdx.x / 32];
#pragma unroll
  for (int c = 0; c < Config::kColumnsPerLane; ++c) {
    wmma::store_matrix_sync(scratch[0], PV[c], Config::kPitchScratch, wmma::mem_row_major);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) rows.O[i][c] += scratch[i][threadIdx.x % 32];
    __syncwarp();  // the scratch may be written again
  }
}

// ---- fragment ping-pong: a step's fragments are loaded before the product of the step before it ----------

struct FragmentPingPong : Config<__half> {};

/// multiply_8x32 with two of each fragment.
template <int kDepth, class LayoutB, int kPitchA, int kPitchB, int kPitchC, class T>
__device__ void multiply_8x32_ahead(const T* sA, const T* sB, float* sC) {
  namespace wmma = nvcuda::wmma;
  wmma::fragment<wmma::matrix_a, 8, 32, 16, T, wmma::row_major> A[2];
  wmma::fragment<wmma::matrix_b, 8, 32, 16, T, LayoutB> B[2];
  wmma::fragment<wmma::accumulator, 8, 32, 16, float> C;
  const auto load = [&](int step) {
    const int k = 16 * step;
    constexpr bool kRowsAreDepth = std::is_same_v<LayoutB, wmma::row_major>;
    wmma::load_matrix_sync(A[step % 2], sA + k, kPitchA);
    wmma::load_matrix_sync(B[step % 2], sB + (kRowsAreDepth ? k * kPitchB : k), kPitchB);
  };
  wmma::fill_fragment(C, 0.0f);
  load(0);
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    if (step + 1 < kDepth / 16) load(step + 1);
    wmma::mma_sync(C, A[step % 2], B[step % 2], C);
  }
  wmma::store_matrix_sync(sC, C, kPitchC, wmma::mem_row_major);
}

__device__ inline void tile_scores(SharedTiles<FragmentPingPong>& s, int row0,
                                   float (&S)[FragmentPingPong::kRowsPerWarp]) {
  using Config = FragmentPingPong;
  auto& scratch = s.scratch[threadIdx.x / 32];
  multiply_8x32_ahead<Config::kHeadDim, nvcuda::wmma::col_major, Config::kPitchQ, Config::kPitchKV,
                      Config::kPitchScratch>(s.Q[row0], s.KV[0], scratch[0]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) S[i] = scratch[i][threadIdx.x % 32];
  __syncwarp();  // the scratch may be written again
}

__device__ inline void tile_output(SharedTiles<FragmentPingPong>& s, int row0, Rows<FragmentPingPong>& rows) {
  using Config = FragmentPingPong;
  auto& scratch = s.scratch[threadIdx.x / 32];
#pragma unroll
  for (int c = 0; c < Config::kColumnsPerLane; ++c) {
    multiply_8x32_ahead<Config::kBlockN, nvcuda::wmma::row_major, Config::kPitchP, Config::kPitchKV,
                        Config::kPitchScratch>(s.P[row0], &s.KV[0][32 * c], scratch[0]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) rows.O[i][c] += scratch[i][threadIdx.x % 32];
    __syncwarp();  // the scratch may be written again
  }
}

// ---- the list ---------------------------------------------------------------------------------------------

template <class Config>
int launch(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype dtype_out) {
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, dtype_out);
}

template <class Variant>
constexpr Ablation ablation(const char* name, const char* what) {
  return {Version::V6, name, what, nullptr, launch<Variant>};
}

std::span<const Ablation> ablations() {
  static constexpr Ablation kAblations[] = {
      ablation<ExactExp>("exact_exp", "V5's expf"),
      ablation<TreeReductions>("tree_reductions", "V5's reductions"),
      ablation<FourBlocks>("four_blocks", "registers for four blocks a multiprocessor, not three"),
      ablation<DeferredScaling>("deferred_scaling", "O is rescaled where P V is added, by one FMA"),
      ablation<TwoAccumulators>("two_accumulators", "both halves of P V in one pass, P's fragments shared"),
      ablation<FragmentPingPong>("fragment_ping_pong",
                                 "fragments of the next step loaded before the product of this one"),
  };
  return kAblations;
}

}  // namespace fa::internal::v6
