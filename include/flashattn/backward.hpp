/// The backward pass: with dO the gradient of a loss with respect to O, the gradients dQ, dK and dV.
///
///     fa::BackwardArgs<float> args;
///     args.q = ..., args.k = ..., args.v = ...;      // as given to forward
///     args.out = ..., args.lse = lse;                // as forward wrote them
///     args.dout = ..., args.dq = ..., args.dk = ..., args.dv = ...;
///     args.mask = fa::Mask::causal();                // forward's mask and scale
///     fa::backward(args, stream);
///
/// No score is stored between the passes: P is recovered from LSE, tile by tile, so that memory stays linear
/// in the sequence lengths (Dao et al., FlashAttention, 2022; Dao, FlashAttention-2, 2023). docs/algorithm.md
/// derives the gradients.
#pragma once

#include <cstddef>
#include <optional>

#include <flashattn/error.hpp>
#include <flashattn/forward.hpp>
#include <flashattn/mask.hpp>
#include <flashattn/tensor.hpp>
#include <flashattn/version.hpp>

FLASHATTN_NAMESPACE_BEGIN

/// The arguments of the backward pass. T is the element type of q, k, v, out and dout; TGrad that of the
/// gradients. Where it runs follows the pointers, as in forward.
///
/// The gradients share no element with any other tensor; slices of one packed buffer share none.
template <class T, class TGrad = T>
struct BackwardArgs {
  Tensor<const T> q;           ///< [B, H, M, D]
  Tensor<const T> k;           ///< [B, Hk, N, D]; Hk divides H, query head h reads key head h / (H / Hk)
  Tensor<const T> v;           ///< [B, Hk, N, Dv]
  Tensor<const T> out;         ///< [B, H, M, Dv], as forward wrote it
  Tensor<const T> dout;        ///< [B, H, M, Dv]; may have stride 0
  Tensor<TGrad> dq;            ///< [B, H, M, D]
  Tensor<TGrad> dk;            ///< [B, Hk, N, D]: the sum over the query heads of a key head
  Tensor<TGrad> dv;            ///< [B, Hk, N, Dv]: the sum over the query heads of a key head
  const float* lse = nullptr;  ///< [B, H, M] contiguous, as forward wrote it
  Mask mask;                   ///< forward's; full unless set
  std::optional<float> scale;  ///< forward's; multiplies q.k, literally; unset: 1/sqrt(D)
  int threads = 0;             ///< CPU backend; 0: FLASHATTN_NUM_THREADS, or else the hardware's number
  bool deterministic = false;  ///< the same bits in every run; the CPU backend always is
  void* workspace =
      nullptr;  ///< null: the library finds its own; else 256-byte aligned memory on the tensors' side
  std::size_t workspace_size = 0;  ///< bytes, at least backward_workspace_size's answer
};

namespace detail {

template <class T, class TGrad>
fa_backward_args c_args(const BackwardArgs<T, TGrad>& args) {
  fa_backward_args c;
  check(fa_backward_args_init(&c, sizeof c));
  c.q = c_tensor(args.q);
  c.k = c_tensor(args.k);
  c.v = c_tensor(args.v);
  c.out = c_tensor(args.out);
  c.dout = c_tensor(args.dout);
  c.dq = c_tensor(args.dq);
  c.dk = c_tensor(args.dk);
  c.dv = c_tensor(args.dv);
  c.lse = args.lse;
  c.deterministic = args.deterministic ? 1 : 0;
  set_options(args, c);
  return c;
}

}  // namespace detail

/// Runs rung `version` (fa::Auto: the best one for the problem on the device).
/// On the device asynchronous on `stream`; on the host synchronous, and `stream` must be null.
/// Throws InvalidArgument, Unsupported, OutOfMemory, CudaError.
template <class T, class TGrad>
void backward(Version version, const BackwardArgs<T, TGrad>& args, Stream stream = nullptr) {
  const fa_backward_args c = detail::c_args(args);
  detail::check(fa_backward(&c, static_cast<fa_version>(version), stream));
}

/// The same, with a rung known at compile time: fa::backward<fa::V2, float>(args, stream), or
/// fa::backward(args, stream) for fa::Auto. A pair that does not exist does not compile.
template <Version V = Version::Auto, class T, class TGrad>
void backward(const BackwardArgs<T, TGrad>& args, Stream stream = nullptr) {
  static_assert(sizeof(detail::static_assert_pair_exists<V, T, Pass::backward>) > 0, "");
  backward(V, args, stream);
}

/// Bytes of workspace that backward would need with the same arguments. Throws as backward does.
template <class T, class TGrad>
std::size_t backward_workspace_size(const BackwardArgs<T, TGrad>& args, Version version = Version::Auto) {
  const fa_backward_args c = detail::c_args(args);
  std::size_t bytes = 0;
  detail::check(fa_backward_workspace_size(&c, static_cast<fa_version>(version), &bytes));
  return bytes;
}

/// Loads modules and sets attributes ahead of capture or serving. Launches nothing. Throws as backward does.
template <class T, class TGrad>
void prepare(const BackwardArgs<T, TGrad>& args, Version version = Version::Auto) {
  const fa_backward_args c = detail::c_args(args);
  detail::check(fa_backward_prepare(&c, static_cast<fa_version>(version)));
}

/// Says what backward would run and why not the others, without running it. Throws InvalidArgument and
/// CudaError as backward does; a problem that nothing takes is an answer, not an error.
template <class T, class TGrad>
Explanation explain(const BackwardArgs<T, TGrad>& args, Version version = Version::Auto) {
  const fa_backward_args c = detail::c_args(args);
  return detail::explanation(c, version, fa_backward_explain);
}

FLASHATTN_NAMESPACE_END
