/// What the device can do at most, measured: cuBLAS products, reading memory, copying it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "bench/device/cuda.hpp"
#include "bench/side.hpp"

namespace fa::bench {

class DeviceCeilings {
 public:
  DeviceCeilings(const cudaDeviceProp& device, const DeviceStream& stream);
  ~DeviceCeilings();

  /// "gemm_fp32", "gemm_fp16", "gemm_bf16": one product of square matrices. fp32 is fp32 (cuBLAS's default
  /// math, no TF32); 16 bits run on tensor cores with fp32 sums.
  Ceiling gemm(Dtype dtype);
  /// "gemm_fp16/sustained": half a second of such products as one call, so that power limits show.
  Ceiling gemm_sustained(Dtype dtype);
  /// "read": every byte of a buffer once.
  Ceiling read();
  /// "copy": cudaMemcpyAsync on the device, bytes read plus bytes written.
  Ceiling copy();

 private:
  class Products;
  Products& products(Dtype dtype);
  const DeviceMemory& stream_buffer();

  int multiprocessors_;
  int size_;  // of the products
  const DeviceStream& stream_;
  std::map<Dtype, std::unique_ptr<Products>> products_;
  std::unique_ptr<DeviceMemory> buffer_;
  std::map<std::string, Ceiling> made_;  // by name, so that graphs are captured once
};

}  // namespace fa::bench
