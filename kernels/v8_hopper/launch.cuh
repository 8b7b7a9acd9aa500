/// The host functions of one instance: launch.cu sees their declarations, the instance files hold their code.
#pragma once

#include <cuda_runtime.h>

#include "kernels/params.hpp"
#include "kernels/v8_hopper/config.cuh"

namespace fa::internal::v8 {

template <class Tiles>
cudaError_t prepare(const DeviceProperties& device);

template <class Tiles>
cudaError_t launch(const ForwardParams& params, Dtype dtype, const LaunchContext& context);

}  // namespace fa::internal::v8
