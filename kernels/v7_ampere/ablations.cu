// V7 with one step taken back at a time. A variant is made of the rung's own Configs, both tiles of a head
// dimension, so that it takes the one that the rung would. Code that it has of its own is an overload for its
// Config, which forward_kernel finds where it is instantiated.
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/v7_ampere/variants.cuh"

namespace fa::internal::v7 {

// ---- chunks of a row where they are: every eight rows that ldmatrix reads lie in the same banks

template <class Base>
struct NotSwizzled : Base {
  struct Layout : Swizzle<Base::kHeadDim> {
    __device__ static constexpr int offset(int row, int chunk) {
      return row * Swizzle<Base::kHeadDim>::kRowBytes + chunk * 16;
    }
  };
};

// ---- one stage: a tile of V is copied beside Q K^T alone, the next of K beside P V

template <class Base>
struct OneStage : Base {
  static constexpr int kStages = 1;
};

// ---- every tile masked

template <class Base>
struct NotPeeled : Base {};

template <class Base>
__device__ void mask_tile(MmaRows<NotPeeled<Base>>& rows, const Window& window,
                          const BlockRange<Base::kBlockN>&, int query0, int tile) {
  rows.mask_scores(window, query0, tile * Base::kBlockN);
}

// ---- O rescaled wherever a row's largest score has grown

template <class Base>
struct AlwaysRescaled : Base {
  static constexpr float kRescaleThreshold = 0;
};

// ---- exponentials first, then all of P V

template <class Base>
struct ExponentialsFirst : Base {};

template <bool kExponentiated, class Base>
__device__ void tile_output(MmaRows<ExponentialsFirst<Base>>& rows,
                            const TileRows<ExponentialsFirst<Base>>& sV) {
  rows.exponentiate();
  tile_output<true, ExponentialsFirst<Base>>(rows, sV);
}

// ---- P through shared memory: 16 keys at a time, written as accumulators and read back as left operands

template <class Base>
struct PThroughShared : Base {};

template <class Base>
struct alignas(128) SharedTiles<PThroughShared<Base>> : SharedTiles<Base> {
  typename Base::Element P[Base::kBlockM][Base::kBlockN];  // swizzled; a warp's rows are its own
};

template <bool kExponentiated, class Base>
__device__ void tile_output(MmaRows<PThroughShared<Base>>& rows, const TileRows<PThroughShared<Base>>& sV) {
  using T = typename Base::Element;
  using Layout = Swizzle<Base::kBlockN>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<PThroughShared<Base>>*>(shared_bytes);
  const int lane = threadIdx.x % 32;
  T* const sRows = s.P[static_cast<int>(threadIdx.x) / 32 * Base::kRowsPerWarp];
  const LaneRows<Base::kBlockN> sP(ptx::shared_address(sRows), lane % 16, lane / 16);
#pragma unroll
  for (int j = 0; j < Base::kKeyBlocks; ++j) {
#pragma unroll
    for (int i = 0; i < Base::kRowBlocks; ++i) {
      if constexpr (!kExponentiated) rows.exponentiate(i, j);
      uint32_t P[4];
      rows.pack_probabilities(P, i, j);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = Layout::offset(rows.row_of(i, e % 2 * 2), 2 * j + e / 2) + lane % 4 * 4;
        *reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(sRows) + at) = P[e];
      }
    }
    __syncwarp();
    uint32_t P[Base::kRowBlocks][4];
#pragma unroll
    for (int i = 0; i < Base::kRowBlocks; ++i) ptx::ldmatrix_x4(P[i], sP(i, j));
#pragma unroll
    for (int k = 0; k < Base::kFeatureBlocks; ++k) {
      uint32_t value[4];
      ptx::ldmatrix_x4_transposed(value, sV(j, k));
#pragma unroll
      for (int i = 0; i < Base::kRowBlocks; ++i) {
        ptx::mma_m16n8k16<T>(rows.O[i][2 * k], P[i], value[0], value[1]);
        ptx::mma_m16n8k16<T>(rows.O[i][2 * k + 1], P[i], value[2], value[3]);
      }
    }
  }
  __syncwarp();  // P's place may be written again
}

// ---- the list

template <template <class> class Variant, int HeadDim>
struct VariantTiles {
  using Large = Variant<typename Tiles<__half, HeadDim>::Large>;
  using Small = Variant<typename Tiles<__half, HeadDim>::Small>;
};

template <template <class> class Variant>
int launch_variant(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype dtype_out) {
  const Scale scale = make_scale(params.scale);
  if (std::max(params.D, params.Dv) <= 64) {
    return launch_by_grid<VariantTiles<Variant, 64>>(params, scale, dtype_out, context);
  }
  return launch_by_grid<VariantTiles<Variant, 128>>(params, scale, dtype_out, context);
}

template <template <class> class Variant>
std::string reject_by_size(const ForwardProblem& problem, const DeviceProperties& device) {
  const bool narrow = std::max(problem.D, problem.Dv) <= 64;
  return reject_variant(problem,
                        narrow ? kSharedBytes<typename VariantTiles<Variant, 64>::Large>
                               : kSharedBytes<typename VariantTiles<Variant, 128>::Large>,
                        device);
}

template <template <class> class Variant>
constexpr Ablation ablation(const char* name, const char* what) {
  return {Version::V7,
          name,
          what,
          nullptr,
          launch_variant<Variant>,
          /*is_candidate=*/false,
          0,
          128,
          reject_by_size<Variant>};
}

std::span<const Ablation> ablations() {
  static constexpr Ablation kAblations[] = {
      ablation<NotSwizzled>("not_swizzled", "chunks of a row where they are: rows meet in the same banks"),
      ablation<OneStage>("one_stage", "one stage of K and V, not two; exponentials before P V"),
      ablation<ExponentialsFirst>("exponentials_first", "exponentials before P V, not between its products"),
      ablation<PThroughShared>("p_through_shared", "P written to shared memory and read back by ldmatrix"),
      ablation<AlwaysRescaled>("always_rescaled", "O is rescaled wherever a row's largest score grows"),
      ablation<NotPeeled>("not_peeled", "every tile masked, not the mask's edge alone"),
  };
  return kAblations;
}

}  // namespace fa::internal::v7
