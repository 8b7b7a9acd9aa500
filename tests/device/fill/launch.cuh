/// The host function of one instance: launch.cu sees its declaration, the instance files hold its code.
#pragma once

#include "kernels/launch.hpp"
#include "tests/device/fill/kernel.cuh"
#include "tests/device/fill/launch.hpp"

namespace fa::test::fill {

template <class Config>
cudaError_t launch(const Params& params, const internal::LaunchContext& context);

}  // namespace fa::test::fill
