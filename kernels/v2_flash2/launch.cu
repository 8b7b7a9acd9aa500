#include "kernels/v2_flash2/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/reject.hpp"
#include "kernels/v2_flash2/launch.cuh"

namespace fa::internal::v2 {
namespace {

// Calls f with the Config that holds the type and both head dimensions.
template <class T, class F>
auto with_head_dim(int64_t head_dim, F f) {
  if (head_dim <= 32) return f(Config<T, 32>{});
  if (head_dim <= 64) return f(Config<T, 64>{});
  if (head_dim <= 128) return f(Config<T, 128>{});
  return f(Config<T, 256>{});
}

template <class F>
auto with_config(Dtype dtype, int64_t head_dim, F f) {
  if (dtype == Dtype::float32) return with_head_dim<float>(head_dim, f);
  if (dtype == Dtype::float16) return with_head_dim<__half>(head_dim, f);
  return with_head_dim<__nv_bfloat16>(head_dim, f);
}

template <class T>
constexpr bool kFitsTheSmallestClass = std::max({kSharedBytes<Config<T, 32>>, kSharedBytes<Config<T, 64>>,
                                                 kSharedBytes<Config<T, 128>>,
                                                 kSharedBytes<Config<T, 256>>}) <= 99 * 1024;
static_assert(kFitsTheSmallestClass<float> && kFitsTheSmallestClass<__half> &&
                  kFitsTheSmallestClass<__nv_bfloat16>,
              "every head dimension runs on every device");

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  const int64_t head_dim = std::max(problem.D, problem.Dv);
  const std::string too_wide = reject_head_dims_above(problem, 256);
  if (!too_wide.empty()) return too_wide;
  return with_config(problem.dtype, head_dim, [&](auto config) {
    using Config = decltype(config);
    const std::string reason = reject_shared_memory(kSharedBytes<Config>, device);
    return reason.empty() ? reject_grid(problem, Config::kBlockM) : reason;
  });
}

int prepare_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  return with_config(problem.dtype, std::max(problem.D, problem.Dv),
                     [&](auto config) { return prepare<decltype(config)>(device); });
}

int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                   Dtype dtype_out) {
  return with_config(dtype_in, std::max(params.D, params.Dv),
                     [&](auto config) { return launch<decltype(config)>(params, dtype_out, context); });
}

}  // namespace fa::internal::v2
