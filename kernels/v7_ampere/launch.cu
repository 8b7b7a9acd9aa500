#include "kernels/v7_ampere/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/reject.hpp"
#include "kernels/v7_ampere/launch.cuh"

namespace fa::internal::v7 {
namespace {

// Calls f with the Tiles of the type and of the next head dimension that holds D and Dv.
template <class T, class F>
auto with_head_dim(int64_t head_dim, F f) {
  if (head_dim <= 32) return f(Tiles<T, 32>{});
  if (head_dim <= 64) return f(Tiles<T, 64>{});
  if (head_dim <= 80) return f(Tiles<T, 80>{});
  if (head_dim <= 96) return f(Tiles<T, 96>{});
  if (head_dim <= 112) return f(Tiles<T, 112>{});
  if (head_dim <= 128) return f(Tiles<T, 128>{});
  if (head_dim <= 192) return f(Tiles<T, 192>{});
  return f(Tiles<T, 256>{});
}

template <class F>
auto with_tiles(Dtype dtype, int64_t head_dim, F f) {
  if (dtype == Dtype::float16) return with_head_dim<__half>(head_dim, f);
  return with_head_dim<__nv_bfloat16>(head_dim, f);
}

template <class Tiles>
constexpr int kLargestSharedBytes = std::max(kSharedBytes<typename Tiles::Large>,
                                             kSharedBytes<typename Tiles::Small>);

template <class T, int... kHeadDims>
constexpr int kLargestOf = std::max({kLargestSharedBytes<Tiles<T, kHeadDims>>...});
template <class T>
constexpr bool kFitsTheSmallestClass = kLargestOf<T, 32, 64, 80, 96, 112, 128, 192, 256> <= 99 * 1024;
static_assert(kFitsTheSmallestClass<__half> && kFitsTheSmallestClass<__nv_bfloat16>,
              "every head dimension runs on every device");

// Of the widest copy, up to a whole chunk, at whose multiples every row of q, k and v starts and ends.
// Strides that are never taken are 0.
int copy_bytes_of(const ForwardParams& p) {
  constexpr uint64_t kElementBytes = 2;
  const auto bits_of = [](const void* data, const Strides& stride) {
    return reinterpret_cast<uintptr_t>(data) |
           static_cast<uint64_t>(stride.batch | stride.head | stride.seq) * kElementBytes;
  };
  uint64_t bits = kWholeChunk | static_cast<uint64_t>(p.D | p.Dv) * kElementBytes | bits_of(p.q, p.q_stride);
  if (p.N > 0) bits |= bits_of(p.k, p.k_stride) | bits_of(p.v, p.v_stride);
  return static_cast<int>(bits & (~bits + 1));
}

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  const int64_t head_dim = std::max(problem.D, problem.Dv);
  const std::string too_wide = reject_head_dims_above(problem, 256);
  if (!too_wide.empty()) return too_wide;
  if (problem.D % 2 != 0 || problem.Dv % 2 != 0) {
    return "takes D and Dv that are even, but D = " + std::to_string(problem.D) +
           " and Dv = " + std::to_string(problem.Dv);
  }
  std::string reason = reject_unaligned(problem, 4);
  if (!reason.empty()) return reason;
  return with_tiles(problem.dtype, head_dim, [&](auto tiles) {
    using Tiles = decltype(tiles);
    const std::string too_large = reject_shared_memory(kLargestSharedBytes<Tiles>, device);
    return too_large.empty() ? reject_grid(problem, Tiles::Small::kBlockM) : too_large;
  });
}

int prepare_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  return with_tiles(problem.dtype, std::max(problem.D, problem.Dv),
                    [&](auto tiles) { return prepare<decltype(tiles)>(device); });
}

int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                   Dtype dtype_out) {
  return with_tiles(dtype_in, std::max(params.D, params.Dv), [&](auto tiles) {
    return launch<decltype(tiles)>(params, make_scale(params.scale), copy_bytes_of(params), dtype_out,
                                   context);
  });
}

}  // namespace fa::internal::v7
