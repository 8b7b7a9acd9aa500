/// The host functions of one instance: launch.cu sees their declarations, the instance files hold their code.
#pragma once

#include <cuda_runtime.h>

#include "kernels/params.hpp"
#include "kernels/v7_ampere/config.cuh"

namespace fa::internal::v7 {

template <class Tiles>
cudaError_t prepare(const DeviceProperties& device);

template <class Tiles>
cudaError_t launch(const ForwardParams& params, const Scale& scale, int copy_bytes, Dtype dtype_out,
                   const LaunchContext& context);

}  // namespace fa::internal::v7
