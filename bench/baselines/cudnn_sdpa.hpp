/// cuDNN's attention, forward and backward, fp16 and bf16, through its C backend interface.
///
/// libcudnn.so.9 is opened at run time (LD_LIBRARY_PATH chooses which): nothing links it, and a machine
/// without it gets a reason instead of a failure. Building needs cuDNN's headers; without them every create()
/// says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <flashattn/mask.hpp>
#include <flashattn/types.hpp>

#include "tests/support/problem.hpp"

struct CUstream_st;

namespace fa::bench {

/// "9.19.0"; where it cannot be loaded, empty, and why_not (may be null) says "cudnn: not found: ...".
std::string cudnn_version(std::string* why_not);

/// One attention problem. Strides are in elements, [batch, head, sequence]; the last dimension is contiguous.
/// Every pointer must be a multiple of 16 bytes.
struct CudnnShape {
  Dtype dtype = Dtype::float16;
  std::int64_t B = 1, H = 1, Hk = 1, M = 1, N = 1, D = 64, Dv = 64;
  Mask mask;
  float scale = 1;
  std::int64_t q_stride[3], k_stride[3], v_stride[3], out_stride[3];
};

/// With the strides of the problem's layout. Calls name its namespace: test::shape_of takes the same problem.
CudnnShape shape_of(const test::Problem& problem);

class CudnnPlan;

class CudnnSdpa {
 public:
  /// Takes the first engine configuration of cuDNN's heuristics that finalises, on the current device. Null
  /// where none does: why_not (may be null) then has every attempt with cuDNN's own texts, one a line.
  static std::unique_ptr<CudnnSdpa> create(const CudnnShape& shape, bool with_stats, std::string* why_not);
  ~CudnnSdpa();

  std::size_t workspace_bytes() const;  // 256-byte aligned device memory
  /// "graph, heuristics A, configuration 1 of 5, engine 8".
  const std::string& engine() const;

  /// Asynchronous. stats, fp32 [B, H, M] contiguous, is the LSE (natural log); null unless with_stats. Can be
  /// captured in a CUDA graph once it has run outside one. Throws std::runtime_error with cuDNN's text.
  void run(const void* q, const void* k, const void* v, void* out, float* stats, void* workspace,
           CUstream_st* stream);

 private:
  explicit CudnnSdpa(std::unique_ptr<CudnnPlan> plan);
  std::unique_ptr<CudnnPlan> plan_;
};

/// The gradients of the same attention. dq lies as q does, dk as k, dv as v, dout as out. dq is summed in no
/// fixed order: two runs may differ in its last bits.
class CudnnSdpaBackward {
 public:
  /// As CudnnSdpa::create. Needs cuDNN 9.6, and of versions up to 9.15 keys in multiples of 128.
  static std::unique_ptr<CudnnSdpaBackward> create(const CudnnShape& shape, std::string* why_not);
  ~CudnnSdpaBackward();

  /// 256-byte aligned device memory: dq's sums, fp32 [B, H, M, D]; delta, fp32 [B, H, M]; cuDNN's own.
  std::size_t workspace_bytes() const;
  const std::string& engine() const;

  /// Asynchronous. out and stats, fp32 [B, H, M] contiguous, are what forward wrote; stats is the LSE.
  /// Captured and throwing as CudnnSdpa::run.
  void run(const void* q, const void* k, const void* v, const void* out, const float* stats, const void* dout,
           void* dq, void* dk, void* dv, void* workspace, CUstream_st* stream);

 private:
  CudnnSdpaBackward(std::unique_ptr<CudnnPlan> plan, const CudnnShape& shape);
  std::unique_ptr<CudnnPlan> plan_;
  std::size_t sums_bytes_, delta_bytes_;  // of the workspace's first two parts
};

}  // namespace fa::bench
