/// The host functions of one instance: launch.cu sees their declarations, the instance files hold their code.
#pragma once

#include <cuda_runtime.h>

#include "kernels/backward/v2_flash2/config.cuh"
#include "kernels/params.hpp"

namespace fa::internal::v2_backward {

template <class T, int kHeadDim>
cudaError_t prepare_gradients(const DeviceProperties& device, bool deterministic);

/// dK, dV, and dQ or its sums in the workspace.
template <class T, int kHeadDim>
cudaError_t launch_gradients(const BackwardParams& params, const Workspace& workspace, Dtype dtype_gradient,
                             bool aligned, const LaunchContext& context);

}  // namespace fa::internal::v2_backward
