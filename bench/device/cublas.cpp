#include "bench/device/cublas.hpp"

#include <stdexcept>

namespace fa::bench {

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

std::string cublas_version() {
  std::string text;
  for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int value = 0;
    if (cublasGetProperty(part, &value) != CUBLAS_STATUS_SUCCESS) return "unknown";
    text += (text.empty() ? "" : ".") + std::to_string(value);
  }
  return text;
}

cudaDataType cublas_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return CUDA_R_32F;
    case Dtype::float16:
      return CUDA_R_16F;
    case Dtype::bfloat16:
      return CUDA_R_16BF;
    case Dtype::none:
      break;
  }
  throw std::runtime_error("cuBLAS: no element type");
}

CublasHandle::CublasHandle(const DeviceStream& stream, void* workspace, std::size_t workspace_bytes) {
  check_cublas(cublasCreate(&handle_), "cublasCreate");
  try {
    check_cublas(cublasSetStream(handle_, stream), "cublasSetStream");
    // After the stream: setting that takes the workspace away.
    check_cublas(cublasSetWorkspace(handle_, workspace, workspace_bytes), "cublasSetWorkspace");
  } catch (...) {
    cublasDestroy(handle_);
    throw;
  }
}

CublasHandle::~CublasHandle() {
  cublasDestroy(handle_);
}

}  // namespace fa::bench
