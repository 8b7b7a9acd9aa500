/// The host functions of one instance: launch.cu sees their declarations, the instance files hold their code.
#pragma once

#include <cuda_runtime.h>

#include "kernels/params.hpp"
#include "kernels/v2_flash2/config.cuh"

namespace fa::internal::v2 {

template <class Config>
cudaError_t prepare(const DeviceProperties& device);

template <class Config>
cudaError_t launch(const ForwardParams& params, Dtype dtype_out, const LaunchContext& context);

}  // namespace fa::internal::v2
