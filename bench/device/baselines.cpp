#include "bench/device/baselines.hpp"

namespace fa::bench {

namespace {

using test::Layout;
using test::Passes;
using test::Problem;

/// What neither takes.
std::string common(const Problem& p) {
  if (p.out_dtype() != p.dtype) return "takes an out of the inputs' element type alone";
  if (p.B == 0 || p.M == 0 || p.N == 0) return "takes no empty tensors";
  if (p.passes == Passes::forward) return "";
  if (p.gradient_dtype() != p.dtype) return "takes gradients of the inputs' element type alone";
  if (p.dout_broadcast) return "takes a dout with a row for each query alone";
  return "";
}

std::string named(const char* baseline, const std::string& why_not) {
  return why_not.empty() ? "" : std::string(baseline) + ": " + why_not;
}

}  // namespace

std::string why_no_cublas_softmax(const Problem& p) {
  std::string why_not = common(p);
  if (p.passes != Passes::forward && p.H != p.Hk) {
    why_not = "takes no grouped heads in the backward pass: its products give dk and dv of every query head";
  }
  if (p.passes != Passes::forward && p.B * p.H > 32768)
    why_not = "takes B H up to 32768 in the backward pass: P is made by one batched product";
  if (p.layout != Layout::bhsd) why_not = "takes contiguous [B, H, S, D] alone";
  if (p.dtype != Dtype::float32 && p.data == test::Data::large)
    why_not = "rounds scores to 16 bits, which data 'large' does not bear";
  return named(kCublasSoftmax, why_not);
}

std::string why_no_cudnn(const Problem& p) {
  std::string why_not = common(p);
  if (p.passes != Passes::forward && p.deterministic) why_not = "sums dq in no fixed order";
  if (p.layout == Layout::unaligned || p.layout == Layout::broadcast)
    why_not = "takes rows of 16-byte alignment, without stride 0";
  if (p.dtype == Dtype::float32) why_not = "takes fp16 and bf16 alone";
  return named(kCudnn, why_not);
}

}  // namespace fa::bench
