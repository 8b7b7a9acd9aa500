#include "kernels/v6_fast_softmax/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/launch.hpp"
#include "kernels/reject.hpp"
#include "kernels/v6_fast_softmax/kernel.cuh"

namespace fa::internal::v6 {
namespace {

template <class F>
auto with_config(Dtype dtype, F f) {
  if (dtype == Dtype::float16) return f(Config<__half>{});
  return f(Config<__nv_bfloat16>{});
}

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties&) {
  return reject_fixed_tiles(problem, Config<__half>::kHeadDim, Config<__half>::kBlockM);
}

int prepare_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  return with_config(problem.dtype, [&](auto config) {
    using Config = decltype(config);
    return prepare_kernel<forward_kernel<Config>>(device, kSharedBytes<Config>);
  });
}

int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                   Dtype dtype_out) {
  return with_config(dtype_in, [&](auto config) {
    using Config = decltype(config);
    return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params,
                                                              dtype_out);
  });
}

}  // namespace fa::internal::v6
