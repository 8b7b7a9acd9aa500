#include "bench/baselines/explicit_attention.hpp"

#include <limits>

#include "bench/baselines/softmax_gradient.hpp"

namespace fa::bench {

namespace {

using test::DeviceReferenceShape;
using test::Problem;

/// Of P, and of dS.
std::size_t score_bytes(const DeviceReferenceShape& s) {
  return static_cast<std::size_t>(s.B * s.H) * static_cast<std::size_t>(s.M) * static_cast<std::size_t>(s.N) *
         size_of(s.dtype);
}

/// With room for all scores at once.
test::DeviceReference whole(const DeviceReferenceShape& shape) {
  return test::DeviceReference(shape, std::numeric_limits<std::int64_t>::max());
}

bool has_backward(const Problem& problem) {
  return problem.passes != test::Passes::forward;
}

}  // namespace

/// One for each (b, h), one after the other, row-major.
struct ExplicitAttention::Matrix {
  const void* data;
  std::int64_t rows, columns;
  bool transposed = false;  // as a factor of a product
};

std::size_t ExplicitAttention::bytes(const Problem& problem) {
  const DeviceReferenceShape shape = test::shape_of(problem);
  return whole(shape).workspace_bytes() + (has_backward(problem) ? score_bytes(shape) : 0);
}

ExplicitAttention::ExplicitAttention(const Problem& problem, const DeviceStream& stream)
    : shape_(test::shape_of(problem)),
      reference_(whole(shape_)),
      stream_(stream),
      workspace_(reference_.workspace_bytes()) {
  if (!has_backward(problem)) return;
  gradient_.emplace(score_bytes(shape_));
  cublas_.emplace(stream, workspace_.data(), workspace_.bytes() - score_bytes(shape_));
}

void ExplicitAttention::forward(const fa_forward_args& a) {
  reference_.run(a.q.data, a.k.data, a.v.data, a.out.data, a.lse, workspace_.data(), stream_);
}

void ExplicitAttention::backward(const fa_backward_args& a) {
  const std::int64_t M = shape_.M, N = shape_.N, D = shape_.D, Dv = shape_.Dv;
  const Matrix q = {a.q.data, M, D}, k = {a.k.data, N, D}, v_transposed = {a.v.data, N, Dv, true};
  const Matrix dout = {a.dout.data, M, Dv};
  const void* const p = workspace_.data() + (workspace_.bytes() - score_bytes(shape_));
  void* const ds = gradient_->data();

  product({p, M, N, true}, dout, 1, a.dv.data);
  product(dout, v_transposed, 1, ds);  // dP
  softmax_gradient(shape_.dtype, p, ds, a.out.data, a.dout.data, shape_.B * shape_.H * M, N, Dv, stream_);
  product({ds, M, N}, k, shape_.scale, a.dq.data);
  product({ds, M, N, true}, q, shape_.scale, a.dk.data);
}

void ExplicitAttention::product(const Matrix& a, const Matrix& b, float factor, void* c) const {
  const std::int64_t rows = a.transposed ? a.columns : a.rows, inner = a.transposed ? a.rows : a.columns;
  const std::int64_t columns = b.transposed ? b.rows : b.columns;
  const cudaDataType type = cublas_type(shape_.dtype);
  const float zero = 0;
  // cuBLAS is column-major: our row-major C = A B is its C^T = B^T A^T.
  check_cublas(cublasGemmStridedBatchedEx_64(
                   *cublas_, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                   a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, columns, rows, inner, &factor, b.data, type,
                   b.columns, b.rows * b.columns, a.data, type, a.columns, a.rows * a.columns, &zero, c, type,
                   columns, rows * columns, shape_.B * shape_.H, kCublasCompute, CUBLAS_GEMM_DEFAULT),
               "explicit attention: cublasGemmStridedBatchedEx_64");
}

}  // namespace fa::bench
