#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/launch.hpp"
#include "kernels/v8_hopper/kernel.cuh"
#include "kernels/v8_hopper/launch.cuh"
#include "kernels/v8_hopper/tensor_maps.hpp"

namespace fa::internal::v8 {

template <class Tiles>
cudaError_t prepare(const DeviceProperties& device) {
  using Large = typename Tiles::Large;
  using Small = typename Tiles::Small;
  const cudaError_t error = prepare_kernel<forward_kernel<Large>>(device, kSharedBytes<Large>);
  return error != cudaSuccess ? error : prepare_kernel<forward_kernel<Small>>(device, kSharedBytes<Small>);
}

/// Time of the whole problem, where one key tile takes `cost`.
template <class Config>
double estimate_time(const ForwardParams& p, const DeviceProperties& device, double cost) {
  const double blocks = device.multiprocessors;
  const double query_tiles = std::ceil(static_cast<double>(p.M) / Config::kBlockM);
  const double tiles = query_tiles * p.B * p.H;
  const double widest =
      std::min<double>(p.N, static_cast<double>(p.window_hi) - p.window_lo + Config::kBlockM);
  const double longest = std::ceil(widest / Config::kBlockN);
  const bool is_even = p.window_lo == -p.M && p.window_hi == p.N;
  if (is_even) return std::ceil(tiles / blocks) * longest * cost;
  // Below a diagonal lies half of the keys, and half of the query tile at the diagonal itself is in vain;
  // where key tiles do not end with query tiles, half of a key tile too.
  const double mean = (static_cast<double>(p.N) + Config::kBlockM) / 2 / Config::kBlockN +
                      (Config::kBlockM % Config::kBlockN == 0 ? 0 : 0.5);
  return std::max(tiles / blocks * std::min(mean, longest), longest) * cost;
}

template <class Config>
cudaError_t launch_config(const ForwardParams& p, Dtype dtype, const LaunchContext& context) {
  TensorMaps maps{};
  // Whole 16 bytes of a row of out. Of a Dv below 8 there are none, and nobody stores through the map.
  const int whole_features = std::max(p.Dv / 8 * 8, 8);
  if (!make_tensor_map(maps.q, dtype, p.q, p.q_stride, p.B, p.H, p.M, p.D, Config::kBlockM) ||
      !make_tensor_map(maps.out, dtype, p.out, p.out_stride, p.B, p.H, p.M, whole_features, 64)) {
    return cudaErrorInvalidValue;
  }
  if (p.N > 0 && (!make_tensor_map(maps.k, dtype, p.k, p.k_stride, p.B, p.Hk, p.N, p.D, Config::kBlockN) ||
                  !make_tensor_map(maps.v, dtype, p.v, p.v_stride, p.B, p.Hk, p.N, p.Dv, Config::kBlockN))) {
    return cudaErrorInvalidValue;
  }
  const auto tiles = static_cast<int32_t>(query_blocks(p, Config::kBlockM));
  const int blocks = Config::kIsPersistent ? std::min(tiles, context.device->multiprocessors) : tiles;
  const Schedule schedule = {make_round_order(p, Config::kBlockM, blocks), make_scale(p.scale)};
  return launch_kernel<forward_kernel<Config>>(context, dim3(static_cast<unsigned>(blocks)),
                                               dim3(Config::kThreads), kSharedBytes<Config>, p, schedule,
                                               maps);
}

template <class Tiles>
cudaError_t launch(const ForwardParams& p, Dtype dtype, const LaunchContext& context) {
  using Large = typename Tiles::Large;
  using Small = typename Tiles::Small;
  if constexpr (!std::is_same_v<Large, Small>) {
    if (estimate_time<Small>(p, *context.device, 1) <
        estimate_time<Large>(p, *context.device, Tiles::kLargeCost)) {
      return launch_config<Small>(p, dtype, context);
    }
  }
  return launch_config<Large>(p, dtype, context);
}

}  // namespace fa::internal::v8
