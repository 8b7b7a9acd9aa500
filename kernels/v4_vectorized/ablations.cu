// V4 with one step taken back, or with another limit on registers.
#include <cuda_fp16.h>

#include "kernels/ablations.hpp"
#include "kernels/launch.hpp"
#include "kernels/v4_vectorized/kernel.cuh"

namespace fa::internal::v4 {

template <class T>
struct ElementCopies : Config<T> {
  static constexpr int kCopyBytes = sizeof(T);
};

template <class T>
struct KNotPadded : Config<T> {
  static constexpr int kPitchK = Config<T>::kHeadDim;
};

template <class T>
struct Index64 : Config<T> {
  using Index = int64_t;
};

/// Unrolled whole, the loops keep more loads under way than 80 registers hold.
template <class T>
struct ForcedUnrolling : Config<T> {
  static constexpr int kUnrollScores = Config<T>::kHeadDim;  // at least as many trips as there are
  static constexpr int kUnrollOutput = Config<T>::kBlockN;
  static constexpr int kBlocksPerMultiprocessor = 1;
};

template <class T>
struct TwoBlocks : Config<T> {
  static constexpr int kBlocksPerMultiprocessor = 2;
};

template <class Config>
int launch(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype dtype_out) {
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, dtype_out);
}

template <template <class> class Variant>
constexpr Ablation ablation(const char* name, const char* what) {
  return {Version::V4, name, what, launch<Variant<float>>, launch<Variant<__half>>};
}

std::span<const Ablation> ablations() {
  static constexpr Ablation kAblations[] = {
      ablation<ElementCopies>("element_copies", "one element a load from global memory, not 16 bytes"),
      ablation<KNotPadded>("k_not_padded", "rows of K without a bank between them"),
      ablation<Index64>("index_64", "64-bit indices of rows and columns"),
      ablation<ForcedUnrolling>("forced_unrolling",
                                "loops of both products unrolled whole, registers not limited"),
      ablation<TwoBlocks>("two_blocks", "registers for two blocks a multiprocessor, not three"),
  };
  return kAblations;
}

}  // namespace fa::internal::v4
