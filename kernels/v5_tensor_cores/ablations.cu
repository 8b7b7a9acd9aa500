// V5 without one of its paddings, or with another limit on registers.
#include <cuda_fp16.h>

#include "kernels/ablations.hpp"
#include "kernels/launch.hpp"
#include "kernels/v5_tensor_cores/kernel.cuh"

namespace fa::internal::v5 {

// WMMA asks for pointers aligned to 32 bytes and pitches to 16: all of these hold both.

struct KVNotPadded : Config<__half> {
  static constexpr int kPitchQ = kHeadDim;
  static constexpr int kPitchKV = kHeadDim;
};

struct PNotPadded : Config<__half> {
  static constexpr int kPitchP = kBlockN;
};

struct ScratchNotPadded : Config<__half> {
  static constexpr int kPitchScratch = 32;
};

struct TwoBlocks : Config<__half> {
  static constexpr int kBlocksPerMultiprocessor = 2;
};

template <class Config>
int launch(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype dtype_out) {
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, dtype_out);
}

template <class Variant>
constexpr Ablation ablation(const char* name, const char* what) {
  return {Version::V5, name, what, nullptr, launch<Variant>};
}

std::span<const Ablation> ablations() {
  static constexpr Ablation kAblations[] = {
      ablation<KVNotPadded>("kv_not_padded", "rows of Q, K and V without 16 bytes between them"),
      ablation<PNotPadded>("p_not_padded", "rows of P without 16 bytes between them"),
      ablation<ScratchNotPadded>("scratch_not_padded", "rows of the products' results without padding"),
      ablation<TwoBlocks>("two_blocks", "registers for two blocks a multiprocessor, not three"),
  };
  return kAblations;
}

}  // namespace fa::internal::v5
