#pragma once

#include "kernels/backward/v2_flash2/kernel.cuh"
#include "kernels/backward/v2_flash2/launch.cuh"
#include "kernels/launch.hpp"

namespace fa::internal::v2_backward {

template <class T, int kHeadDim>
cudaError_t prepare_gradients(const DeviceProperties& device, bool deterministic) {
  return with_tiles<T, kHeadDim>(device.shared_memory_per_block, [&](auto config) {
    using Config = decltype(config);
    const cudaError_t error = prepare_kernel<key_gradients_kernel<Config>>(device, kSharedBytes<Config>);
    if (error != cudaSuccess || !deterministic) return error;
    return prepare_kernel<query_gradients_kernel<Config>>(device, kSharedBytes<Config>);
  });
}

/// One block for each tile of `block` rows of each of `heads` heads; none for a tensor without elements.
template <auto kKernel, class Config>
cudaError_t launch_tiles(const LaunchContext& context, int64_t rows, int block, int64_t heads,
                         const BackwardParams& p, const Workspace& workspace, Dtype dtype_gradient,
                         bool aligned) {
  const int64_t blocks = (rows + block - 1) / block * heads;
  if (blocks == 0) return cudaSuccess;
  return launch_kernel<kKernel>(context, dim3(static_cast<unsigned>(blocks)), dim3(Config::kThreads),
                                kSharedBytes<Config>, p, workspace, dtype_gradient, aligned);
}

template <class Config>
cudaError_t launch_config(const BackwardParams& p, const Workspace& workspace, Dtype dtype_gradient,
                          bool aligned, const LaunchContext& context) {
  const int64_t B = p.B;
  const cudaError_t error = launch_tiles<key_gradients_kernel<Config>, Config>(
      context, p.N, Config::kBlockN, B * p.Hk, p, workspace, dtype_gradient, aligned);
  if (error != cudaSuccess || !p.deterministic) return error;
  return launch_tiles<query_gradients_kernel<Config>, Config>(context, p.M, Config::kBlockM, B * p.H, p,
                                                              workspace, dtype_gradient, aligned);
}

template <class T, int kHeadDim>
cudaError_t launch_gradients(const BackwardParams& params, const Workspace& workspace, Dtype dtype_gradient,
                             bool aligned, const LaunchContext& context) {
  return with_tiles<T, kHeadDim>(context.device->shared_memory_per_block, [&](auto config) {
    return launch_config<decltype(config)>(params, workspace, dtype_gradient, aligned, context);
  });
}

}  // namespace fa::internal::v2_backward
