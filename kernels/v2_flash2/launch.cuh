/// One instance of V2, for launch.cu and the instance files.
#pragma once

#include <cuda_runtime.h>

#include "kernels/params.hpp"
#include "kernels/v2_flash2/config.cuh"

namespace fa::internal::v2 {

template <class Config>
struct Instance {
  static cudaError_t prepare(const DeviceProperties& device);
  static cudaError_t launch(const ForwardParams& params, Dtype dtype_out, const LaunchContext& context);
};

}  // namespace fa::internal::v2
