#include "tests/support/device_reference.hpp"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace fa::test {
namespace {

constexpr std::size_t kCublasBytes = std::size_t{32} << 20;
constexpr std::int64_t kMostGroups = 32768;  // of one batched product

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("device reference: ") + what + ": " + cudaGetErrorString(error));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string("device reference: ") + what + ": " + cublasGetStatusString(status) +
                             " (status " + std::to_string(static_cast<int>(status)) + ")");
  }
}

/// This thread's handle on the current device. Never destroyed: at exit the CUDA runtime may be gone.
cublasHandle_t cublas_handle() {
  thread_local std::map<int, cublasHandle_t> handles;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  cublasHandle_t& handle = handles[device];
  if (handle == nullptr) check(cublasCreate(&handle), "cublasCreate");
  return handle;
}

struct Types {
  cudaDataType element;
  cublasComputeType_t compute;
  cublasMath_t math;
};

Types types_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return {CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_PEDANTIC_MATH};
    case Dtype::float16:
      return {CUDA_R_16F, CUBLAS_COMPUTE_32F, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION};
    case Dtype::bfloat16:
      return {CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION};
    case Dtype::none:
      break;
  }
  throw std::invalid_argument("device reference: no element type");
}

const std::byte* at(const void* base, std::int64_t elements, Dtype dtype) {
  return static_cast<const std::byte*>(base) + elements * static_cast<std::int64_t>(size_of(dtype));
}

std::byte* at(void* base, std::int64_t elements, Dtype dtype) {
  return static_cast<std::byte*>(base) + elements * static_cast<std::int64_t>(size_of(dtype));
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, Free>;

DeviceMemory allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  return DeviceMemory(memory);
}

DeviceMemory upload(const std::vector<float>& values, CUstream_st* stream) {
  DeviceMemory memory = allocate(values.size() * sizeof(float));
  if (!values.empty()) {
    check(cudaMemcpyAsync(memory.get(), values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice,
                          stream),
          "copy to the device");
  }
  return memory;
}

void download(std::vector<float>& values, const void* from, CUstream_st* stream) {
  if (values.empty()) return;
  check(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(float), cudaMemcpyDeviceToHost, stream),
        "copy to the host");
}

}  // namespace

DeviceReference::DeviceReference(const DeviceReferenceShape& shape, std::size_t score_limit)
    : shape_(shape), groups_(0), group_rows_(0), groups_at_once_(0), rows_at_once_(0) {
  types_of(shape.dtype);
  if (shape.Hk < 1 || shape.H % shape.Hk != 0 || shape.D < 1 || shape.Dv < 1 || shape.B < 0 || shape.M < 0 ||
      shape.N < 0)
    throw std::invalid_argument("device reference: sizes");
  groups_ = shape.B * shape.Hk;
  group_rows_ = shape.H / shape.Hk * shape.M;
  const std::int64_t row_bytes =
      std::max<std::int64_t>(shape.N, 1) * static_cast<std::int64_t>(size_of(shape.dtype));
  const std::int64_t rows = std::max<std::int64_t>(static_cast<std::int64_t>(score_limit) / row_bytes, 1);
  rows_at_once_ = std::min(rows, group_rows_);
  groups_at_once_ = rows_at_once_ < group_rows_ || group_rows_ == 0
                        ? std::min<std::int64_t>(groups_, 1)
                        : std::min({rows / group_rows_, groups_, kMostGroups});
}

std::size_t DeviceReference::workspace_bytes() const {
  return kCublasBytes +
         static_cast<std::size_t>(groups_at_once_ * rows_at_once_ * shape_.N) * size_of(shape_.dtype);
}

void DeviceReference::run(const void* q, const void* k, const void* v, void* out, float* lse, void* workspace,
                          CUstream_st* stream) const {
  if (groups_ == 0 || group_rows_ == 0) return;
  const std::int64_t rows = groups_ * group_rows_;
  if (shape_.N == 0) {
    check(cudaMemsetAsync(out, 0, static_cast<std::size_t>(rows * shape_.Dv) * size_of(shape_.dtype), stream),
          "cudaMemsetAsync");
    reference_softmax(shape_.dtype, nullptr, rows, 0, shape_.M, 0, shape_.mask, lse, stream);
    return;
  }
  const Types types = types_of(shape_.dtype);
  const cublasHandle_t handle = cublas_handle();
  check(cublasSetStream(handle, stream), "cublasSetStream");
  check(cublasSetWorkspace(handle, workspace, kCublasBytes),
        "cublasSetWorkspace");  // after the stream: it resets it
  check(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
  check(cublasSetMathMode(handle, types.math), "cublasSetMathMode");
  for (std::int64_t group = 0; group < groups_; group += groups_at_once_) {
    const std::int64_t groups = std::min(groups_at_once_, groups_ - group);
    for (std::int64_t row = 0; row < group_rows_; row += rows_at_once_) {
      run_rows(q, k, v, out, lse, workspace, stream, group, groups, row,
               std::min(rows_at_once_, group_rows_ - row));
    }
  }
}

void DeviceReference::run_rows(const void* q, const void* k, const void* v, void* out, float* lse,
                               void* workspace, CUstream_st* stream, std::int64_t first_group,
                               std::int64_t groups, std::int64_t first_row, std::int64_t rows) const {
  const Types types = types_of(shape_.dtype);
  const cublasHandle_t handle = cublas_handle();
  const std::int64_t N = shape_.N, D = shape_.D, Dv = shape_.Dv;
  const std::int64_t row = first_group * group_rows_ + first_row;  // among all B H M
  void* const scores = static_cast<std::byte*>(workspace) + kCublasBytes;
  const float one = 1, zero = 0;

  // cuBLAS is column-major: our row-major S = Q K^T is its S^T = K Q^T.
  check(cublasGemmStridedBatchedEx_64(handle, CUBLAS_OP_T, CUBLAS_OP_N, N, rows, D, &shape_.scale,
                                      at(k, first_group * N * D, shape_.dtype), types.element, D, N * D,
                                      at(q, row * D, shape_.dtype), types.element, D, group_rows_ * D, &zero,
                                      scores, types.element, N, rows * N, groups, types.compute,
                                      CUBLAS_GEMM_DEFAULT),
        "scores: cublasGemmStridedBatchedEx_64");
  // Several groups come whole, so that their rows follow each other in B H M as in the scores.
  reference_softmax(shape_.dtype, scores, groups * rows, row, shape_.M, N, shape_.mask,
                    lse == nullptr ? nullptr : lse + row, stream);
  check(cublasGemmStridedBatchedEx_64(handle, CUBLAS_OP_N, CUBLAS_OP_N, Dv, rows, N, &one,
                                      at(v, first_group * N * Dv, shape_.dtype), types.element, Dv, N * Dv,
                                      scores, types.element, N, rows * N, &zero,
                                      at(out, row * Dv, shape_.dtype), types.element, Dv, group_rows_ * Dv,
                                      groups, types.compute, CUBLAS_GEMM_DEFAULT),
        "output: cublasGemmStridedBatchedEx_64");
}

DeviceReferenceShape shape_of(const Problem& problem) {
  DeviceReferenceShape shape;
  shape.dtype = problem.dtype;
  shape.B = problem.B;
  shape.H = problem.H;
  shape.Hk = problem.Hk;
  shape.M = problem.M;
  shape.N = problem.N;
  shape.D = problem.D;
  shape.Dv = problem.Dv;
  shape.mask = problem.mask;
  shape.scale = scale_of(problem);
  return shape;
}

Outputs<float> device_reference_forward(const Problem& problem, const Inputs& inputs) {
  DeviceReferenceShape shape = shape_of(problem);
  shape.dtype = Dtype::float32;
  const DeviceReference reference(shape);

  Outputs<float> result;
  const auto rows = static_cast<std::size_t>(shape.B * shape.H * shape.M);
  result.out.resize(rows * static_cast<std::size_t>(shape.Dv));
  result.lse.resize(rows);
  if (rows == 0) return result;

  CUstream_st* const stream = cudaStreamPerThread;
  const DeviceMemory q = upload(inputs.q, stream);
  const DeviceMemory k = upload(inputs.k, stream);
  const DeviceMemory v = upload(inputs.v, stream);
  const DeviceMemory out = allocate(result.out.size() * sizeof(float));
  const DeviceMemory lse = allocate(result.lse.size() * sizeof(float));
  const DeviceMemory workspace = allocate(reference.workspace_bytes());
  reference.run(q.get(), k.get(), v.get(), out.get(), static_cast<float*>(lse.get()), workspace.get(),
                stream);
  download(result.out, out.get(), stream);
  download(result.lse, lse.get(), stream);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return result;
}

}  // namespace fa::test
