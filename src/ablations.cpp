#include "src/ablations.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <flashattn/error.hpp>

#include "kernels/ablations.hpp"
#include "src/device.hpp"
#include "src/kernel_table.hpp"
#include "src/params.hpp"
#include "src/validate.hpp"

namespace fa::internal {
namespace {

std::vector<Ablation> collect() {
  std::vector<Ablation> all;
  const auto add = [&](std::span<const Ablation> room) { all.insert(all.end(), room.begin(), room.end()); };
  // One line a room, beside its entry in kernels/CMakeLists.txt. A room left out is not named: nothing to
  // link.
  if constexpr (FLASHATTN_HAVE_V4_ABLATIONS) add(v4::ablations());
  if constexpr (FLASHATTN_HAVE_V5_ABLATIONS) add(v5::ablations());
  if constexpr (FLASHATTN_HAVE_V6_ABLATIONS) add(v6::ablations());
  if constexpr (FLASHATTN_HAVE_V7_ABLATIONS) {
    add(v7::ablations());
    add(v7::candidates());
  }
  if constexpr (FLASHATTN_HAVE_V8_ABLATIONS) add(v8::ablations());
  return all;
}

const std::vector<Ablation>& all_ablations() {
  static const std::vector<Ablation> all = collect();
  return all;
}

LaunchForward* launch_of(const Ablation& ablation, Dtype dtype) {
  if (dtype == Dtype::float32) return ablation.fp32;
  return dtype == Dtype::float16 ? ablation.fp16 : nullptr;
}

std::string reject_of_rung(const Ablation& ablation, const ForwardProblem& problem,
                           const DeviceProperties& device) {
  for (const ForwardRow& row : forward_rows()) {
    if (row.version == ablation.version && row.dtype == problem.dtype) return row.reject(problem, device);
  }
  return "its rung has no such element type";
}

/// What the variant does not take; empty: it takes the problem.
std::string reject(const Ablation& ablation, const ForwardProblem& problem, const DeviceProperties& device) {
  if (launch_of(ablation, problem.dtype) == nullptr) {
    return std::string("not built for ") + name_of(problem.dtype);
  }
  const int64_t head_dim = std::max(problem.D, problem.Dv);
  if (head_dim <= ablation.head_dim_above || head_dim > ablation.head_dim_up_to) {
    return "not built for D = " + std::to_string(problem.D) + " and Dv = " + std::to_string(problem.Dv);
  }
  const std::string reason = reject_of_rung(ablation, problem, device);
  if (!reason.empty() || ablation.reject == nullptr) return reason;
  return ablation.reject(problem, device);
}

/// A call, validated and taken.
struct Call {
  fa_forward_args args;
  ForwardProblem problem;
  int ordinal;
};

Call take(const Ablation& ablation, const fa_forward_args* given) {
  const fa_forward_args args = complete(given);
  const ForwardProblem problem = validate(args);
  const Side side = find_side(args, ablation.version);
  if (!side.on_device) throw InvalidArgument("the tensors are in host memory");
  const std::string reason = reject(ablation, problem, device_properties(side.device));
  if (!reason.empty()) throw Unsupported(reason);
  return {args, problem, side.device};
}

void forward(const Ablation& ablation, const fa_forward_args* given, struct ::CUstream_st* stream) {
  const ErrorStateGuard errors;
  const auto [args, problem, ordinal] = take(ablation, given);
  if (problem.B == 0 || problem.M == 0) return;
  const CurrentDevice current(ordinal);
  LaunchForward* const launch = launch_of(ablation, problem.dtype);
  const DeviceProperties& device = device_properties(ordinal);
  check_cuda(launch(make_params(problem, args), {&device, stream, 0}, problem.dtype, problem.dtype_out),
             ablation.name);
}

/// f's exception as text; null where it threw none.
template <class F>
const char* text_of_failure(F f) {
  thread_local std::string error;
  try {
    f();
    return nullptr;
  } catch (const std::exception& failure) {
    error = failure.what();
    return error.c_str();
  }
}

}  // namespace
}  // namespace fa::internal

using namespace fa::internal;

extern "C" {

int32_t fa_ablation_count(void) {
  return static_cast<int32_t>(all_ablations().size());
}

fa_ablation_info fa_ablation_get(int32_t index) {
  const Ablation& ablation = all_ablations().at(static_cast<size_t>(index));
  return {.version = static_cast<fa_version>(ablation.version),
          .name = ablation.name,
          .what = ablation.what,
          .fp32 = ablation.fp32 != nullptr ? 1 : 0,
          .fp16 = ablation.fp16 != nullptr ? 1 : 0,
          .is_candidate = ablation.is_candidate ? 1 : 0,
          .head_dim_above = ablation.head_dim_above,
          .head_dim_up_to = ablation.head_dim_up_to};
}

const char* fa_ablation_reject(int32_t index, const fa_forward_args* args) {
  return text_of_failure([&] {
    const ErrorStateGuard errors;
    take(all_ablations().at(static_cast<size_t>(index)), args);
  });
}

const char* fa_ablation_forward(int32_t index, const fa_forward_args* args, struct CUstream_st* stream) {
  return text_of_failure([&] { forward(all_ablations().at(static_cast<size_t>(index)), args, stream); });
}

}  // extern "C"
