#pragma once

#include "tests/device/fill/launch.cuh"

namespace fa::test::fill {

template <class Config>
cudaError_t launch(const Params& params, const internal::LaunchContext& context) {
  const int64_t elements = params.rows * Config::kHeadDim;
  if (elements == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((elements + Config::kThreads - 1) / Config::kThreads);
  return internal::launch_kernel<fill_kernel<Config>>(context, dim3(blocks), dim3(Config::kThreads), 0,
                                                      static_cast<typename Config::Element*>(params.out),
                                                      params.rows, params.first);
}

}  // namespace fa::test::fill
