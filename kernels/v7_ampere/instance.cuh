#pragma once

#include <algorithm>

#include "kernels/launch.hpp"
#include "kernels/v7_ampere/kernel.cuh"
#include "kernels/v7_ampere/launch.cuh"

namespace fa::internal::v7 {

template <class Tiles>
cudaError_t prepare(const DeviceProperties& device) {
  using Large = typename Tiles::Large;
  using Small = typename Tiles::Small;
  cudaError_t error = prepare_kernel<forward_kernel<Large>>(device, kSharedBytes<Large>);
  if (error == cudaSuccess) error = prepare_kernel<forward_kernel<Small>>(device, kSharedBytes<Small>);
  if (error != cudaSuccess) return error;
  return prepare_kernel<forward_kernel<InPieces<Large>>>(device, kSharedBytes<InPieces<Large>>);
}

template <class Config>
cudaError_t launch_config(const ForwardParams& params, const Scale& scale, int copy_bytes, Dtype dtype_out,
                          const LaunchContext& context) {
  const Schedule schedule = {make_tile_order(params, Config::kBlockM, context.device->l2_bytes), scale,
                             make_divisor(std::max(params.D / 8, 1)),
                             make_divisor(std::max(params.Dv / 8, 1)), copy_bytes};
  return launch_query_tiles<forward_kernel<Config>, Config>(context, kSharedBytes<Config>, params, schedule,
                                                            dtype_out);
}

/// The tiles for a grid of this size.
template <class Tiles>
cudaError_t launch_by_grid(const ForwardParams& params, const Scale& scale, Dtype dtype_out,
                           const LaunchContext& context) {
  using Large = typename Tiles::Large;
  const int64_t at_once = int64_t{context.device->multiprocessors} * Large::kBlocksPerMultiprocessor;
  if (query_blocks(params, Large::kBlockM) > at_once) {
    return launch_config<Large>(params, scale, kWholeChunk, dtype_out, context);
  }
  return launch_config<typename Tiles::Small>(params, scale, kWholeChunk, dtype_out, context);
}

template <class Tiles>
cudaError_t launch(const ForwardParams& params, const Scale& scale, int copy_bytes, Dtype dtype_out,
                   const LaunchContext& context) {
  if (copy_bytes == kWholeChunk) return launch_by_grid<Tiles>(params, scale, dtype_out, context);
  return launch_config<InPieces<typename Tiles::Large>>(params, scale, copy_bytes, dtype_out, context);
}

}  // namespace fa::internal::v7
