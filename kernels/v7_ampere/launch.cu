#include "kernels/v7_ampere/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reject.hpp"
#include "kernels/v7_ampere/launch.cuh"

namespace fa::internal::v7 {
namespace {

// Calls f with the Tiles of the type and of the next head dimension that holds D and Dv.
template <class T, class F>
auto with_head_dim(int64_t head_dim, F f) {
  if (head_dim <= 32) return f(Tiles<T, 32>{});
  if (head_dim <= 64) return f(Tiles<T, 64>{});
  if (head_dim <= 96) return f(Tiles<T, 96>{});
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

template <class T>
constexpr bool kFitsTheSmallestClass =
    std::max({kLargestSharedBytes<Tiles<T, 32>>, kLargestSharedBytes<Tiles<T, 64>>,
              kLargestSharedBytes<Tiles<T, 96>>, kLargestSharedBytes<Tiles<T, 128>>,
              kLargestSharedBytes<Tiles<T, 192>>, kLargestSharedBytes<Tiles<T, 256>>}) <= 99 * 1024;
static_assert(kFitsTheSmallestClass<__half> && kFitsTheSmallestClass<__nv_bfloat16>,
              "every head dimension runs on every device");

// As many heads as leave their keys and values half of L2, in groups of like size.
int head_group(const ForwardParams& p, const DeviceProperties& device) {
  constexpr int64_t kElementBytes = 2;
  const int64_t bytes = int64_t{p.N} * (p.D + p.Dv) * kElementBytes;  // of one key head
  const int64_t heads = int64_t{p.B} * p.H;
  const int64_t most = std::max<int64_t>(1, device.l2_bytes / 2 / std::max<int64_t>(1, bytes)) * p.group;
  const int64_t groups = (heads + most - 1) / most;
  return static_cast<int>((heads + groups - 1) / groups);
}

Schedule make_schedule(const ForwardParams& p, const DeviceProperties& device) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLargest = std::numeric_limits<float>::max();  // infinity would make NaN of a score of 0
  const float sign = p.scale > 0 ? 1.0f : p.scale < 0 ? -1.0f : 0.0f;
  return {.head_group = head_group(p, device),
          .scale_log2 =
              sign == 0 ? 1.0f : static_cast<float>(std::min(std::abs(double{p.scale}) * kLog2E, kLargest)),
          .sign = sign};
}

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  const int64_t head_dim = std::max(problem.D, problem.Dv);
  if (head_dim > 256) {
    return "takes D and Dv up to 256, but D = " + std::to_string(problem.D) +
           " and Dv = " + std::to_string(problem.Dv);
  }
  if (problem.D % 8 != 0 || problem.Dv % 8 != 0) {
    return "takes D and Dv that are multiples of 8, but D = " + std::to_string(problem.D) +
           " and Dv = " + std::to_string(problem.Dv);
  }
  std::string reason = reject_unaligned(problem);
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
    return launch<decltype(tiles)>(params, make_schedule(params, *context.device), dtype_out, context);
  });
}

}  // namespace fa::internal::v7
