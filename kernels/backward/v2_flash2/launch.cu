#include "kernels/backward/v2_flash2/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>

#include "kernels/backward/v2_flash2/launch.cuh"
#include "kernels/backward/v2_flash2/row_kernels.cuh"
#include "kernels/launch.hpp"
#include "kernels/reject.hpp"

namespace fa::internal::v2_backward {
namespace {

// Calls f with a value of the type.
template <class F>
auto with_type(Dtype dtype, F f) {
  if (dtype == Dtype::float32) return f(float{});
  if (dtype == Dtype::float16) return f(__half{});
  return f(__nv_bfloat16{});
}

template <int kHeadDim_>
struct HeadDim {
  static constexpr int kHeadDim = kHeadDim_;
};

// Calls f with the next of 32, 64, 128, 256 up.
template <class F>
auto with_head_dim(int64_t head_dim, F f) {
  if (head_dim <= 32) return f(HeadDim<32>{});
  if (head_dim <= 64) return f(HeadDim<64>{});
  if (head_dim <= 128) return f(HeadDim<128>{});
  return f(HeadDim<256>{});
}

template <class F>
auto with_instance(Dtype dtype, int64_t head_dim, F f) {
  return with_type(dtype, [&](auto type) {
    return with_head_dim(head_dim, [&](auto holder) { return f(type, holder); });
  });
}

template <class T>
constexpr bool kFitsTheClasses =
    std::max({kSharedBytes<SmallConfig<T, 32>>, kSharedBytes<SmallConfig<T, 64>>,
              kSharedBytes<SmallConfig<T, 128>>, kSharedBytes<SmallConfig<T, 256>>}) <= 99 * 1024 &&
    std::max({kSharedBytes<LargeConfig<T, 128>>, kSharedBytes<LargeConfig<T, 256>>}) <= 163 * 1024;
static_assert(kFitsTheClasses<float>, "every head dimension runs on every device");

constexpr size_t kSectionAlignment = 256;

size_t section(size_t bytes) {
  return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

// Bytes of Delta, and of the sums of dQ.
size_t delta_bytes(size_t rows) {
  return section(rows * sizeof(float));
}

int64_t dq_pitch(int64_t D) {
  return (D + 3) / 4 * 4;  // rows aligned for atomic_add_four
}

Workspace workspace_of(const BackwardParams& p) {
  const size_t rows = static_cast<size_t>(p.B) * static_cast<size_t>(p.H) * static_cast<size_t>(p.M);
  auto* const bytes = static_cast<unsigned char*>(p.workspace);
  return {reinterpret_cast<float*>(bytes),
          p.deterministic ? nullptr : reinterpret_cast<float*>(bytes + delta_bytes(rows)), dq_pitch(p.D)};
}

// Rows of the tensor start at multiples of four elements.
bool rows_aligned(const void* data, const Strides& stride, int64_t B, int64_t H, int64_t S, int64_t D,
                  size_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) % (4 * element_bytes) == 0 && (B == 1 || stride.batch % 4 == 0) &&
         (H == 1 || stride.head % 4 == 0) && (S == 1 || stride.seq % 4 == 0) && D % 4 == 0;
}

bool inputs_aligned(const BackwardParams& p, size_t element_bytes) {
  return rows_aligned(p.q, p.q_stride, p.B, p.H, p.M, p.D, element_bytes) &&
         rows_aligned(p.k, p.k_stride, p.B, p.Hk, p.N, p.D, element_bytes) &&
         rows_aligned(p.v, p.v_stride, p.B, p.Hk, p.N, p.Dv, element_bytes) &&
         rows_aligned(p.dout, p.dout_stride, p.B, p.H, p.M, p.Dv, element_bytes);
}

// One block for each kRowsPerBlock query rows; none where there are no rows.
template <auto kKernel, class... More>
cudaError_t launch_rows(const BackwardParams& p, const Workspace& workspace, const LaunchContext& context,
                        More... more) {
  const int64_t rows = static_cast<int64_t>(p.B) * p.H * p.M;
  const int64_t blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  if (blocks == 0) return cudaSuccess;
  return launch_kernel<kKernel>(context, dim3(static_cast<unsigned>(blocks)), dim3(kRowThreads), 0, p,
                                workspace, more...);
}

// A grid of one block for each tile of `block` rows of each head.
std::string reject_tiles(int64_t heads, int64_t rows, int block) {
  // In double: the product of the sizes may not fit 64 bits.
  const double blocks = static_cast<double>(heads) * static_cast<double>((rows + block - 1) / block);
  return blocks > std::numeric_limits<int32_t>::max() ? "needs more than 2^31 - 1 blocks" : "";
}

}  // namespace

std::string reject_backward(const BackwardProblem& problem, const DeviceProperties& device) {
  const int64_t head_dim = std::max(problem.D, problem.Dv);
  const std::string too_wide = reject_head_dims_above(problem, 256);
  if (!too_wide.empty()) return too_wide;
  // The element type does not change the tiles: they are fp32.
  return with_head_dim(head_dim, [&](auto holder) {
    return with_tiles<float, holder.kHeadDim>(device.shared_memory_per_block, [&](auto config) {
      using Config = decltype(config);
      std::string reason = reject_shared_memory(kSharedBytes<Config>, device);
      if (reason.empty()) reason = reject_tiles(problem.B * problem.Hk, problem.N, Config::kBlockN);
      const int query_block =
          problem.deterministic ? std::min(kRowsPerBlock, Config::kBlockM) : kRowsPerBlock;
      return reason.empty() ? reject_tiles(problem.B * problem.H, problem.M, query_block) : reason;
    });
  });
}

size_t backward_workspace(const BackwardProblem& problem, const DeviceProperties&, int) {
  const size_t rows = static_cast<size_t>(problem.B * problem.H * problem.M);
  const size_t sums = problem.deterministic ? 0 : section(rows * dq_pitch(problem.D) * sizeof(float));
  return delta_bytes(rows) + sums;
}

int prepare_backward(const BackwardProblem& problem, const DeviceProperties& device) {
  return with_instance(problem.dtype, std::max(problem.D, problem.Dv),
                       [&](auto type, auto holder) -> cudaError_t {
                         using T = decltype(type);
                         cudaError_t error = prepare_kernel<delta_kernel<T>>(device, 0);
                         if (error == cudaSuccess && !problem.deterministic)
                           error = prepare_kernel<scale_dq_kernel>(device, 0);
                         if (error != cudaSuccess) return error;
                         return prepare_gradients<T, holder.kHeadDim>(device, problem.deterministic);
                       });
}

int launch_backward(const BackwardParams& params, const LaunchContext& context, Dtype dtype_in,
                    Dtype dtype_gradient) {
  const Workspace workspace = workspace_of(params);
  return with_instance(dtype_in, std::max(params.D, params.Dv), [&](auto type, auto holder) -> cudaError_t {
    using T = decltype(type);
    cudaError_t error = launch_rows<delta_kernel<T>>(params, workspace, context);
    if (error != cudaSuccess) return error;
    error = launch_gradients<T, holder.kHeadDim>(params, workspace, dtype_gradient,
                                                 inputs_aligned(params, sizeof(T)), context);
    if (error != cudaSuccess || params.deterministic) return error;
    return launch_rows<scale_dq_kernel>(params, workspace, context, dtype_gradient);
  });
}

}  // namespace fa::internal::v2_backward
