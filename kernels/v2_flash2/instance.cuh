#pragma once

#include "kernels/launch.hpp"
#include "kernels/v2_flash2/kernel.cuh"
#include "kernels/v2_flash2/launch.cuh"

namespace fa::internal::v2 {

template <class Config>
cudaError_t prepare(const DeviceProperties& device) {
  return prepare_kernel<forward_kernel<Config>>(device, kSharedBytes<Config>);
}

template <class Config>
cudaError_t launch(const ForwardParams& params, Dtype dtype_out, const LaunchContext& context) {
  const dim3 grid(query_blocks(params, Config::kBlockM));
  return launch_kernel<forward_kernel<Config>>(context, grid, dim3(Config::kThreads), kSharedBytes<Config>,
                                               params, dtype_out);
}

}  // namespace fa::internal::v2
