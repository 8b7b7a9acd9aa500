#pragma once

#include "kernels/launch.hpp"
#include "kernels/v7_ampere/kernel.cuh"
#include "kernels/v7_ampere/launch.cuh"

namespace fa::internal::v7 {

template <class Tiles>
cudaError_t prepare(const DeviceProperties& device) {
  using Large = typename Tiles::Large;
  using Small = typename Tiles::Small;
  const cudaError_t error = prepare_kernel<forward_kernel<Large>>(device, kSharedBytes<Large>);
  return error != cudaSuccess ? error : prepare_kernel<forward_kernel<Small>>(device, kSharedBytes<Small>);
}

template <class Config>
cudaError_t launch_config(const ForwardParams& params, const Schedule& schedule, Dtype dtype_out,
                          const LaunchContext& context) {
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, schedule,
                                                            dtype_out);
}

template <class Tiles>
cudaError_t launch(const ForwardParams& params, const Schedule& schedule, Dtype dtype_out,
                   const LaunchContext& context) {
  using Large = typename Tiles::Large;
  const int64_t at_once = int64_t{context.device->multiprocessors} * Large::kBlocksPerMultiprocessor;
  if (query_blocks(params, Large::kBlockM) > at_once) {
    return launch_config<Large>(params, schedule, dtype_out, context);
  }
  return launch_config<typename Tiles::Small>(params, schedule, dtype_out, context);
}

}  // namespace fa::internal::v7
