#include "kernels/v3_warp_local/launch.hpp"

#include "kernels/launch.hpp"
#include "kernels/reject.hpp"
#include "kernels/v3_warp_local/kernel.cuh"

namespace fa::internal::v3 {

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties&) {
  const std::string reason = reject_head_dim(problem, Config::kHeadDim);
  return reason.empty() ? reject_grid(problem, Config::kBlockM) : reason;
}

int prepare_forward(const ForwardProblem&, const DeviceProperties& device) {
  return prepare_kernel<forward_kernel<Config>>(device, kSharedBytes<Config>);
}

int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype, Dtype dtype_out) {
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, dtype_out);
}

}  // namespace fa::internal::v3
