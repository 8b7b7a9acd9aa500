// The tile sizes that were tried for each head dimension, those of config.cuh among them: bench_attention
// --candidates V7 measures them again. A new device, compiler or kernel may order them anew.
#include <cuda_fp16.h>

#include <array>
#include <sstream>
#include <string>
#include <type_traits>

#include "kernels/v7_ampere/variants.cuh"

namespace fa::internal::v7 {
namespace {

template <int HeadDim, int BlockM, int BlockN, int Stages, int Warps, int BlocksPerMultiprocessor,
          int QInRegisters>
using Half = Config<__half, HeadDim, BlockM, BlockN, Stages, Warps, BlocksPerMultiprocessor, QInRegisters>;

template <class Config>
constexpr int kLargestHeadDim = 16 * Config::kFeatureBlocks;

template <class Config>
std::string short_name() {
  std::ostringstream text;
  text << "d" << kLargestHeadDim<Config> << "_" << Config::kBlockM << "x" << Config::kBlockN << "_s"
       << Config::kStages << "_w" << Config::kWarps << "_b" << Config::kBlocksPerMultiprocessor << "_q"
       << Config::kQInRegisters;
  return text.str();
}

template <class Config>
std::string in_words() {
  using Chosen = Tiles<__half, kLargestHeadDim<Config>>;
  std::ostringstream text;
  if (std::is_same_v<Config, typename Chosen::Large>) {
    text << "the rung's tiles for up to " << kLargestHeadDim<Config> << " features: ";
  } else if (std::is_same_v<Config, typename Chosen::Small>) {
    text << "the rung's smaller tiles for up to " << kLargestHeadDim<Config> << " features: ";
  }
  text << Config::kBlockM << " queries, " << Config::kBlockN << " keys; stages: " << Config::kStages
       << ", warps: " << Config::kWarps << ", blocks a multiprocessor: " << Config::kBlocksPerMultiprocessor
       << ", " << Config::kQInRegisters << " of " << Config::kFeatureBlocks << " blocks of Q in registers";
  return text.str();
}

template <class Config>
int launch_candidate(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype dtype_out) {
  return launch_config<Config>(params, make_scale(params.scale), kWholeChunk, dtype_out, context);
}

template <class Config>
std::string reject_candidate(const ForwardProblem& problem, const DeviceProperties& device) {
  return reject_variant(problem, kSharedBytes<Config>, device);
}

// For D above the first number.
template <class Config>
Ablation candidate(int head_dim_above) {
  static const std::string name = short_name<Config>(), what = in_words<Config>();
  return {Version::V7,
          name.c_str(),
          what.c_str(),
          nullptr,
          launch_candidate<Config>,
          /*is_candidate=*/true,
          head_dim_above,
          kLargestHeadDim<Config>,
          reject_candidate<Config>};
}

}  // namespace

std::span<const Ablation> candidates() {
  static const std::array kCandidates = {
      candidate<Half<32, 128, 64, 2, 4, 3, 2>>(0),
      candidate<Half<32, 64, 64, 2, 4, 4, 2>>(0),
      candidate<Half<32, 128, 32, 2, 4, 3, 2>>(0),
      candidate<Half<32, 128, 64, 1, 4, 3, 2>>(0),
      candidate<Half<32, 64, 128, 2, 4, 3, 2>>(0),

      candidate<Half<64, 128, 64, 2, 4, 2, 4>>(32),
      candidate<Half<64, 64, 64, 2, 4, 4, 0>>(32),
      candidate<Half<64, 128, 64, 2, 4, 2, 0>>(32),
      candidate<Half<64, 128, 32, 2, 4, 2, 4>>(32),
      candidate<Half<64, 128, 64, 1, 4, 2, 4>>(32),
      candidate<Half<64, 128, 128, 1, 4, 2, 0>>(32),
      candidate<Half<64, 128, 64, 2, 8, 2, 0>>(32),

      candidate<Narrower<Half<96, 128, 64, 2, 4, 2, 1>, 80>>(64),
      candidate<Narrower<Half<96, 128, 64, 2, 4, 2, 0>, 80>>(64),
      candidate<Narrower<Half<96, 128, 64, 2, 4, 2, 3>, 80>>(64),
      candidate<Narrower<Half<96, 64, 64, 2, 4, 3, 0>, 80>>(64),

      candidate<Half<96, 128, 64, 2, 4, 2, 0>>(64),
      candidate<Half<96, 64, 64, 2, 4, 3, 0>>(64),
      candidate<Half<96, 128, 32, 2, 4, 2, 0>>(64),
      candidate<Half<96, 64, 64, 1, 4, 3, 0>>(64),

      candidate<Narrower<Half<128, 128, 64, 2, 4, 2, 1>, 112>>(96),
      candidate<Narrower<Half<128, 128, 64, 2, 4, 2, 0>, 112>>(96),
      candidate<Narrower<Half<128, 128, 64, 2, 4, 2, 2>, 112>>(96),
      candidate<Narrower<Half<128, 64, 64, 2, 4, 2, 0>, 112>>(96),

      // Also for D = 97 to 112, beside the narrower tiles; likewise those of 96 for D = 65 to 80.
      candidate<Half<128, 128, 64, 2, 4, 2, 0>>(96),
      candidate<Half<128, 64, 64, 2, 4, 2, 0>>(96),
      candidate<Half<128, 128, 32, 2, 4, 2, 0>>(96),
      candidate<Half<128, 64, 128, 1, 4, 2, 0>>(96),
      candidate<Half<128, 128, 64, 2, 8, 1, 0>>(96),

      candidate<Half<192, 64, 64, 1, 4, 2, 0>>(128),
      candidate<Half<192, 64, 32, 2, 4, 2, 0>>(128),
      candidate<Half<192, 64, 48, 1, 4, 2, 0>>(128),
      candidate<Half<192, 128, 64, 1, 8, 1, 0>>(128),

      candidate<Half<256, 64, 64, 1, 4, 2, 0>>(192),
      candidate<Half<256, 64, 32, 2, 4, 2, 0>>(192),
      candidate<Half<256, 64, 48, 1, 4, 2, 0>>(192),
      candidate<Half<256, 128, 64, 1, 8, 1, 0>>(192),
  };
  return kCandidates;
}

}  // namespace fa::internal::v7
