/// Explicit attention that keeps P, as a program without an attention library trains: forward writes P
/// [B, H, M, N] to memory, backward reads it and writes dP, then dS, of the same size.
///
///     forward    S = scale Q K^T, P = softmax(S) in place, O = P V    (tests/support/device_reference.hpp)
///     backward   dV = P^T dO
///                dP = dO V^T
///                dS = P o (dP - rowsum(dO o O))                       in place of dP
///                dQ = scale dS K
///                dK = scale dS^T Q
///
/// Products by cuBLAS. Everything in memory, P and dS too, is of the problem's element type; sums are fp32,
/// without TF32. The scale is applied to the fp32 sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <flashattn/flashattn.hpp>

#include "bench/device/cublas.hpp"
#include "tests/support/device_reference.hpp"

namespace fa::bench {

class ExplicitAttention {
 public:
  /// Device memory that it takes beside the tensors of a call: cuBLAS's own 32 MiB and P, B H M N elements;
  /// where problem.passes has backward, as much again for dP and dS.
  static std::size_t bytes(const test::Problem& problem);

  /// The stream must outlive it. Takes what why_no_cublas_softmax (bench/device/baselines.hpp) has nothing
  /// against, and where passes has backward B H up to 32768. Throws std::bad_alloc where memory runs out.
  ExplicitAttention(const test::Problem& problem, const DeviceStream& stream);

  /// Asynchronous, without allocation. Reads q, k, v, writes out, and lse where it is not null. Tensors are
  /// the problem's: contiguous [B, H, S, D].
  void forward(const fa_forward_args& args);

  /// The same, once forward has run with the same q, k, v and `out`. Reads q, k, v, out, dout and the kept P,
  /// writes dq, dk, dv; P stays.
  void backward(const fa_backward_args& args);

 private:
  struct Matrix;
  /// c = factor op(a) op(b), row-major, for every (b, h).
  void product(const Matrix& a, const Matrix& b, float factor, void* c) const;

  test::DeviceReferenceShape shape_;
  test::DeviceReference reference_;
  const DeviceStream& stream_;
  DeviceMemory workspace_;                // the reference's: cuBLAS's own, then P [B, H, M, N]
  std::optional<DeviceMemory> gradient_;  // dP, then dS [B, H, M, N]
  std::optional<CublasHandle> cublas_;
};

}  // namespace fa::bench
