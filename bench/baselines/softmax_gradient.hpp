/// The softmax's gradient, the one step of explicit attention's backward pass that is no matrix product.
#pragma once

#include <cstdint>

#include <flashattn/types.hpp>

struct CUstream_st;

namespace fa::bench {

/// gradient = P o (dP - delta) in place of dP, with delta = rowsum(dO o O), which equals rowsum(P o dP)
/// (FlashAttention, arXiv:2205.14135, appendix B.2): a row of P and of dP is read once. What comes out is
/// dS / scale.
///
/// probabilities, gradient [rows, N]; out, dout [rows, Dv]; all contiguous, of `dtype`, in device memory
/// aligned to 16 bytes. Computed in fp32, rounded once. Asynchronous on `stream`. Throws std::runtime_error.
void softmax_gradient(Dtype dtype, const void* probabilities, void* gradient, const void* out,
                      const void* dout, std::int64_t rows, std::int64_t N, std::int64_t Dv,
                      CUstream_st* stream);

}  // namespace fa::bench
