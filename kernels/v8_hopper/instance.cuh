#pragma once

#include <algorithm>

#include "kernels/launch.hpp"
#include "kernels/v8_hopper/kernel.cuh"
#include "kernels/v8_hopper/launch.cuh"
#include "kernels/v8_hopper/tensor_maps.hpp"

namespace fa::internal::v8 {

template <class... ChoiceTypes>
cudaError_t prepare_all(Choices<ChoiceTypes...>, const DeviceProperties& device) {
  cudaError_t error = cudaSuccess;
  const auto prepare_one = [&](auto choice) {
    using Config = typename decltype(choice)::Config;
    if (error == cudaSuccess) error = prepare_kernel<forward_kernel<Config>>(device, kSharedBytes<Config>);
  };
  (prepare_one(ChoiceTypes{}), ...);
  return error;
}

template <class Tiles>
cudaError_t prepare(const DeviceProperties& device) {
  return prepare_all(Tiles{}, device);
}

template <class Config>
cudaError_t launch_config(const ForwardParams& p, Dtype dtype, const LaunchContext& context) {
  TensorMaps maps{};
  // Of a Dv below 8 nobody stores through the map.
  const int features_out = std::max(mapped_features(p.Dv), 8);
  if (!make_tensor_map(maps.q, dtype, p.q, p.q_stride, p.B, p.H, p.M, p.D, Config::kBlockM) ||
      !make_tensor_map(maps.out, dtype, p.out, p.out_stride, p.B, p.H, p.M, features_out, kConsumerRows)) {
    return cudaErrorInvalidValue;
  }
  if (p.N > 0 && (!make_tensor_map(maps.k, dtype, p.k, p.k_stride, p.B, p.Hk, p.N, p.D, Config::kBlockN) ||
                  !make_tensor_map(maps.v, dtype, p.v, p.v_stride, p.B, p.Hk, p.N, p.Dv, Config::kBlockN))) {
    return cudaErrorInvalidValue;
  }
  const auto tiles = static_cast<int32_t>(query_blocks(p, Config::kBlockM));
  const int at_once = context.device->multiprocessors;
  const int blocks = Config::kIsPersistent ? std::min(tiles, at_once) : tiles;
  const Schedule schedule = {make_round_order(p, Config::kBlockM, blocks), make_scale(p.scale)};
  return launch_kernel<forward_kernel<Config>>(context, dim3(static_cast<unsigned>(blocks)),
                                               dim3(Config::kThreads), kSharedBytes<Config>, p, schedule,
                                               maps);
}

template <class... ChoiceTypes>
cudaError_t launch_fastest(Choices<ChoiceTypes...> choices, const ForwardParams& p, Dtype dtype,
                           const LaunchContext& context) {
  using Launch = cudaError_t(const ForwardParams&, Dtype, const LaunchContext&);
  constexpr Launch* kLaunches[] = {launch_config<typename ChoiceTypes::Config>...};
  return kLaunches[fastest_choice(choices, p, context.device->multiprocessors)](p, dtype, context);
}

template <class Tiles>
cudaError_t launch(const ForwardParams& p, Dtype dtype, const LaunchContext& context) {
  return launch_fastest(Tiles{}, p, dtype, context);
}

}  // namespace fa::internal::v8
