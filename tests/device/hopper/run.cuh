/// How the kernels of these tests are launched.
#pragma once

#include <cuda.h>

#include <stdexcept>

#include "kernels/launch.hpp"
#include "kernels/v8_hopper/tensor_maps.hpp"
#include "tests/device/device_array.hpp"

namespace fa::test::hopper {

/// Runs kKernel to its end.
template <auto kKernel, class... Params>
void run(int blocks, int threads, int shared_bytes, const Params&... params) {
  internal::DeviceProperties device;
  check(cudaDeviceGetAttribute(&device.shared_memory_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const internal::LaunchContext context = {&device, nullptr, 0};
  check(internal::launch_kernel<kKernel>(context, dim3(static_cast<unsigned>(blocks)),
                                         dim3(static_cast<unsigned>(threads)), shared_bytes, params...));
  check(cudaDeviceSynchronize());
}

inline CUtensorMap tensor_map(Dtype dtype, const void* data, const internal::Strides& stride, int B,
                              int heads, int rows, int features, int box_rows) {
  CUtensorMap map;
  if (!internal::v8::make_tensor_map(map, dtype, data, stride, B, heads, rows, features, box_rows)) {
    throw std::runtime_error("the driver makes no such tensor map");
  }
  return map;
}

/// Of a matrix [rows][features].
inline CUtensorMap matrix_map(Dtype dtype, const void* data, int rows, int features, int box_rows) {
  return tensor_map(dtype, data, {0, 0, features}, 1, 1, rows, features, box_rows);
}

}  // namespace fa::test::hopper
