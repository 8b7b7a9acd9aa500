/// The forward pass: O = softmax(scale Q K^T + mask) V and its log-sum-exp.
///
/// A thin door: it fills the C struct and calls the C interface, so no C++ type crosses the library's
/// boundary.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

#include <flashattn/error.hpp>
#include <flashattn/mask.hpp>
#include <flashattn/tensor.hpp>
#include <flashattn/version.hpp>

FLASHATTN_NAMESPACE_BEGIN

/// The CUDA stream, as cudaStream_t is defined; null is the default stream, and the only one on the host.
using Stream = struct ::CUstream_st*;

/// The arguments of the forward pass. T is the element type of q, k and v; TOut that of out.
///
/// Where it runs follows the pointers: device or managed memory on the device that holds it, plain host
/// memory on the CPU backend. All of them must be on one side.
template <class T, class TOut = T>
struct ForwardArgs {
  Tensor<const T> q;           ///< [B, H, M, D]
  Tensor<const T> k;           ///< [B, Hk, N, D]; Hk divides H, query head h reads key head h / (H / Hk)
  Tensor<const T> v;           ///< [B, Hk, N, Dv]
  Tensor<TOut> out;            ///< [B, H, M, Dv]; shares no element with an input or with itself
  float* lse = nullptr;        ///< [B, H, M] contiguous, natural logarithm; null: not wanted
  Mask mask;                   ///< full unless set
  std::optional<float> scale;  ///< multiplies q.k, literally; unset: 1/sqrt(D)
  int threads = 0;             ///< CPU backend; 0: FLASHATTN_NUM_THREADS, or else the hardware's number
  void* workspace =
      nullptr;  ///< null: the library finds its own; else 256-byte aligned memory on the tensors' side
  std::size_t workspace_size = 0;  ///< bytes, at least forward_workspace_size's answer
};

/// Where a call runs.
enum class Placement : fa_placement { host = FA_ON_HOST, device = FA_ON_DEVICE };

/// What a call would do, and why not otherwise.
struct Explanation {
  bool runs = false;                ///< some kernel takes the problem
  Version version = Version::Auto;  ///< the rung that runs, where one does
  Placement placement = Placement::host;
  int device = -1;                 ///< CUDA ordinal; -1 on the host
  int threads = 0;                 ///< CPU backend
  std::size_t workspace_size = 0;  ///< bytes
  std::string kernel;              ///< its name; empty where nothing runs
  std::string text;                ///< the choice and the reasons, for people
};

namespace detail {

template <class T>
fa_tensor c_tensor(const Tensor<T>& t) noexcept {
  using Element = typename std::remove_const<T>::type;
  static_assert(
      dtype_of<Element> != Dtype::none,
      "flashattn: a tensor's element type is float, fa::half, fa::bfloat16, __half or __nv_bfloat16");
  return {const_cast<Element*>(t.data),
          static_cast<fa_dtype>(dtype_of<Element>),
          0,
          {t.size[0], t.size[1], t.size[2], t.size[3]},
          {t.stride[0], t.stride[1], t.stride[2], t.stride[3]}};
}

/// What the C interface's `explain` says, in C++.
template <class Args, class Explain>
Explanation explanation(const Args& args, Version version, Explain explain) {
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  std::size_t length = 0;
  check(explain(&args, static_cast<fa_version>(version), &plan, nullptr, 0, &length));
  Explanation e;
  e.text.resize(length + 1);
  check(explain(&args, static_cast<fa_version>(version), &plan, &e.text[0], length + 1, &length));
  e.text.resize(length < e.text.size() ? length : e.text.size() - 1);
  e.runs = plan.runs != 0;
  e.version = static_cast<Version>(plan.version);
  e.placement = static_cast<Placement>(plan.placement);
  e.device = plan.device;
  e.threads = plan.threads;
  e.workspace_size = plan.workspace_size;
  e.kernel = plan.kernel == nullptr ? "" : plan.kernel;
  return e;
}

/// Mask, scale, threads and workspace, which every args struct has.
template <class Args, class CArgs>
void set_options(const Args& args, CArgs& c) {
  c.mask.left = args.mask.left;
  c.mask.right = args.mask.right;
  c.mask.alignment = static_cast<std::int32_t>(args.mask.alignment);
  c.scale = args.scale.value_or(0.0f);
  c.scale_is_set = args.scale.has_value() ? 1 : 0;
  c.threads = args.threads;
  c.workspace = args.workspace;
  c.workspace_size = args.workspace_size;
}

template <class T, class TOut>
fa_forward_args c_args(const ForwardArgs<T, TOut>& args) {
  fa_forward_args c;
  check(fa_forward_args_init(&c, sizeof c));
  c.q = c_tensor(args.q);
  c.k = c_tensor(args.k);
  c.v = c_tensor(args.v);
  c.out = c_tensor(args.out);
  c.lse = args.lse;
  set_options(args, c);
  return c;
}

/// Names the pair in the compiler's message: static_assert_pair_exists<fa::Version::V5, float>.
template <Version V, class T, Pass P>
struct static_assert_pair_exists {
  static_assert(
      exists<V, T, P>,
      "flashattn: this pair of Version and T does not exist (see fa::exists and the README's table)");
};

}  // namespace detail

/// Runs rung `version` (fa::Auto: the best one for the problem on the device).
/// On the device asynchronous on `stream`; on the host synchronous, and `stream` must be null.
/// Throws InvalidArgument, Unsupported, OutOfMemory, CudaError.
template <class T, class TOut>
void forward(Version version, const ForwardArgs<T, TOut>& args, Stream stream = nullptr) {
  const fa_forward_args c = detail::c_args(args);
  detail::check(fa_forward(&c, static_cast<fa_version>(version), stream));
}

/// The same, with a rung known at compile time: fa::forward<fa::V2, float>(args, stream), or
/// fa::forward(args, stream) for fa::Auto. A pair that does not exist does not compile.
template <Version V = Version::Auto, class T, class TOut>
void forward(const ForwardArgs<T, TOut>& args, Stream stream = nullptr) {
  static_assert(sizeof(detail::static_assert_pair_exists<V, T, Pass::forward>) > 0, "");
  forward(V, args, stream);
}

/// Bytes of workspace that forward would need with the same arguments. Throws as forward does.
template <class T, class TOut>
std::size_t forward_workspace_size(const ForwardArgs<T, TOut>& args, Version version = Version::Auto) {
  const fa_forward_args c = detail::c_args(args);
  std::size_t bytes = 0;
  detail::check(fa_forward_workspace_size(&c, static_cast<fa_version>(version), &bytes));
  return bytes;
}

/// Loads modules and sets attributes ahead of capture or serving. Launches nothing. Throws as forward does.
template <class T, class TOut>
void prepare(const ForwardArgs<T, TOut>& args, Version version = Version::Auto) {
  const fa_forward_args c = detail::c_args(args);
  detail::check(fa_forward_prepare(&c, static_cast<fa_version>(version)));
}

/// Says what forward would run and why not the others, without running it. Throws InvalidArgument and
/// CudaError as forward does; a problem that nothing takes is an answer, not an error.
template <class T, class TOut>
Explanation explain(const ForwardArgs<T, TOut>& args, Version version = Version::Auto) {
  const fa_forward_args c = detail::c_args(args);
  return detail::explanation(c, version, fa_forward_explain);
}

FLASHATTN_NAMESPACE_END
