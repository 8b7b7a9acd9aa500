/// cuBLAS as the bench uses it: every status becomes an exception, and memory is the caller's.
#pragma once

#include <cublas_v2.h>

#include <cstddef>
#include <string>

#include <flashattn/types.hpp>

#include "bench/device/cuda.hpp"

namespace fa::bench {

/// Throws std::runtime_error "what: cuBLAS's text".
void check_cublas(cublasStatus_t status, const char* what);

/// "13.1.0"; "unknown" where the library does not say.
std::string cublas_version();

cudaDataType cublas_type(Dtype dtype);

/// Products are summed in fp32: exact fp32 products where the elements are fp32, since TF32 is off unless a
/// handle's math mode asks for it.
inline constexpr cublasComputeType_t kCublasCompute = CUBLAS_COMPUTE_32F;

/// A handle on the current device. Its calls go to `stream` and take `workspace`, 256-byte aligned device
/// memory, so that they allocate nothing and can be captured in a CUDA graph.
class CublasHandle {
 public:
  CublasHandle(const DeviceStream& stream, void* workspace, std::size_t workspace_bytes);
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;
  ~CublasHandle();

  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace fa::bench
