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
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, dtype_out);
}

}  // namespace fa::internal::v2
