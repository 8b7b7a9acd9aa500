/// Attention as three calls on the device: a cuBLAS product, a row softmax, a cuBLAS product, the whole score
/// matrix between them. Shares no code with the library: tests hold every GPU row against it, and bench times
/// it.
///
/// fp32 is fp32: pedantic math, no TF32. In fp16 and bf16 it is explicit attention as a program without an
/// attention library writes it: Q, K, V, scores and probabilities in the element type, products and softmax
/// computed in fp32; the scale is applied in fp32 before the scores are rounded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/oracle.hpp"

struct CUstream_st;

namespace fa::test {

struct DeviceReferenceShape {
  Dtype dtype = Dtype::float32;
  std::int64_t B = 1, H = 1, Hk = 1, M = 1, N = 1, D = 64, Dv = 64;
  Mask mask;
  float scale = 1;
};

/// The problem's sizes, mask, scale and element type; its layout is not read.
DeviceReferenceShape shape_of(const Problem& problem);

class DeviceReference {
 public:
  /// Scores lie in the workspace, for as many heads, or rows of one head, at a time as `score_limit` bytes
  /// take.
  explicit DeviceReference(const DeviceReferenceShape& shape, std::size_t score_limit = std::size_t{2} << 30);

  /// Device memory, 256-byte aligned: cuBLAS's own 32 MiB, then the scores.
  std::size_t workspace_bytes() const;

  /// q [B, H, M, D], k [B, Hk, N, D], v [B, Hk, N, Dv], out [B, H, M, Dv], all contiguous, of the shape's
  /// dtype; lse fp32 [B, H, M], or null. Rows that see no key: out = 0, lse = -infinity. Asynchronous on
  /// `stream`, on the current device; no allocation, so it can be captured in a CUDA graph once it has run
  /// outside one. Throws std::runtime_error.
  void run(const void* q, const void* k, const void* v, void* out, float* lse, void* workspace,
           CUstream_st* stream) const;

 private:
  void run_rows(const void* q, const void* k, const void* v, void* out, float* lse, void* workspace,
                CUstream_st* stream, std::int64_t first_group, std::int64_t groups, std::int64_t first_row,
                std::int64_t rows) const;

  DeviceReferenceShape shape_;
  std::int64_t groups_;          // B Hk: the query heads of a key head are one tall matrix
  std::int64_t group_rows_;      // H / Hk M
  std::int64_t groups_at_once_;  // 1 where rows_at_once_ < group_rows_
  std::int64_t rows_at_once_;
};

/// Host to device and back, in fp32 from the problem's rounded inputs. On the current device; synchronous.
Outputs<float> device_reference_forward(const Problem& problem, const Inputs& inputs);

/// In place on scores [rows, N] of `dtype`: row r of them is query (first_row + r) mod M. Keys that the mask
/// hides are not read and become 0; a NaN in a visible score makes its row NaN. lse, or null, is that of row
/// 0. M, N, rows >= 0. Throws std::runtime_error.
void reference_softmax(Dtype dtype, void* scores, std::int64_t rows, std::int64_t first_row, std::int64_t M,
                       std::int64_t N, const Mask& mask, float* lse, CUstream_st* stream);

}  // namespace fa::test
