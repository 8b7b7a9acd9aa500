/// What crosses from the host to a kernel: plain data, computed once by src/params.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <flashattn/types.hpp>
#include <flashattn/version.hpp>

namespace fa::internal {

/// Element strides of a tensor's batch, head and sequence dimensions. Features are contiguous.
struct Strides {
  int64_t batch;
  int64_t head;
  int64_t seq;
};

/// A forward problem after validation: what was asked, and of where its data lies only the alignment. The
/// host's choice (a row's reject, its workspace size) reads this; kernels read ForwardParams.
struct ForwardProblem {
  Dtype dtype;      // of q, k and v
  Dtype dtype_out;  // of out
  int64_t B, H, Hk, M, N, D, Dv;
  Strides q, k, v, out;
  // Row i sees keys j with i + window_lo <= j <= i + window_hi. Unbounded sides are clamped to
  // window_lo = -M and window_hi = N, which bound nothing for any row; every value lies in [-M, N].
  int64_t window_lo, window_hi;
  float scale;
  // Bytes: the largest power of two, up to 16, at whose multiples every row of the tensor starts.
  int q_alignment, k_alignment, v_alignment, out_alignment;
};

/// The problem with its pointers: what a kernel gets.
struct ForwardParams {
  const void* q;  // [B, H, M, D]
  const void* k;  // [B, Hk, N, D]
  const void* v;  // [B, Hk, N, Dv]
  void* out;      // [B, H, M, Dv]
  float* lse;     // [B, H, M] contiguous, or null
  void* workspace;
  size_t workspace_size;  // bytes
  Strides q_stride, k_stride, v_stride, out_stride;
  int32_t B, H, Hk, M, N, D, Dv;
  int32_t group;                 // H / Hk: query head h reads key head h / group
  int32_t window_lo, window_hi;  // row i sees keys in [i + window_lo, i + window_hi]
  float scale;
};

/// The mask hides no key from any row.
inline bool sees_all_keys(const ForwardParams& p) {
  return p.window_lo == -p.M && p.window_hi == p.N;
}

/// A backward problem after validation: BackwardParams without its pointers. dtype is that of q, k, v, out
/// and dout; the gradients share dtype_gradient.
struct BackwardProblem {
  Dtype dtype, dtype_gradient;
  int64_t B, H, Hk, M, N, D, Dv;
  Strides q, k, v, out, dout, dq, dk, dv;
  int64_t window_lo, window_hi;  // as in ForwardProblem
  float scale;
  bool deterministic;  // bitwise the same in every run
};

/// The problem with its pointers: what a backward kernel gets.
struct BackwardParams {
  const void* q;     // [B, H, M, D]
  const void* k;     // [B, Hk, N, D]
  const void* v;     // [B, Hk, N, Dv]
  const void* out;   // [B, H, M, Dv]
  const void* dout;  // [B, H, M, Dv]
  const float* lse;  // [B, H, M] contiguous, as forward wrote it
  void* dq;          // [B, H, M, D]
  void* dk;          // [B, Hk, N, D]
  void* dv;          // [B, Hk, N, Dv]
  void* workspace;
  Strides q_stride, k_stride, v_stride, out_stride, dout_stride, dq_stride, dk_stride, dv_stride;
  int32_t B, H, Hk, M, N, D, Dv;
  int32_t group;                 // H / Hk: query head h reads key head h / group
  int32_t window_lo, window_hi;  // row i sees keys in [i + window_lo, i + window_hi]
  float scale;
  bool deterministic;
};

/// What a row may ask of the device: read once per device and kept. Host rows get one with ordinal -1.
struct DeviceProperties {
  int ordinal = -1;
  int major = 0, minor = 0;         // compute capability
  int shared_memory_per_block = 0;  // bytes, opt-in limit, lowered by FLASHATTN_MAX_SMEM
  int multiprocessors = 0;          // lowered by FLASHATTN_MAX_MULTIPROCESSORS
  int64_t l2_bytes = 0;
  char name[64] = {};
};

/// How a launch is made.
struct LaunchContext {
  const DeviceProperties* device;
  struct ::CUstream_st* stream;
  int threads;  // CPU backend: how many, at least 1
};

// What a room offers: functions of these types in its namespace, by the names reject_forward,
// forward_workspace, prepare_forward and launch_forward.

/// Why the room does not take the problem on the device, in the user's words; empty: it does.
using RejectForward = std::string(const ForwardProblem& problem, const DeviceProperties& device);
/// Bytes of workspace.
using ForwardWorkspace = size_t(const ForwardProblem& problem, const DeviceProperties& device, int threads);
/// The forward_workspace of a room that needs none.
inline size_t no_workspace(const ForwardProblem&, const DeviceProperties&, int) {
  return 0;
}
/// Loads modules and sets attributes on the current device; cudaError_t as int.
using PrepareForward = int(const ForwardProblem& problem, const DeviceProperties& device);
/// Runs it; cudaError_t as int, 0 on the host.
using LaunchForward = int(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                          Dtype dtype_out);

/// The same of backward. launch_backward gets the dtypes of the inputs and of the gradients.
using RejectBackward = std::string(const BackwardProblem& problem, const DeviceProperties& device);
using BackwardWorkspace = size_t(const BackwardProblem& problem, const DeviceProperties& device, int threads);
using PrepareBackward = int(const BackwardProblem& problem, const DeviceProperties& device);
using LaunchBackward = int(const BackwardParams& params, const LaunchContext& context, Dtype dtype_in,
                           Dtype dtype_gradient);

}  // namespace fa::internal
