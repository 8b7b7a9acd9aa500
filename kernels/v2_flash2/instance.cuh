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
  const unsigned query_tiles = static_cast<unsigned>((params.M + Config::kBlockM - 1) / Config::kBlockM);
  const unsigned heads = static_cast<unsigned>(params.B) * static_cast<unsigned>(params.H);
  return launch_kernel<forward_kernel<Config>>(context, dim3(query_tiles * heads), dim3(Config::kThreads),
                                               kSharedBytes<Config>, params, dtype_out);
}

}  // namespace fa::internal::v2
