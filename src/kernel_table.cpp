#include "src/kernel_table.hpp"

#include <iterator>

#include "kernels/backward/v2_flash2/launch.hpp"
#include "kernels/v0_unfused/launch.hpp"
#include "kernels/v1_flash1/launch.hpp"
#include "kernels/v2_flash2/launch.hpp"
#include "kernels/v3_warp_local/launch.hpp"
#include "kernels/v4_vectorized/launch.hpp"
#include "kernels/v5_tensor_cores/launch.hpp"
#include "kernels/v6_fast_softmax/launch.hpp"
#include "kernels/v7_ampere/launch.hpp"
#include "kernels/v8_hopper/launch.hpp"
#include "src/cpu/backward.hpp"
#include "src/cpu/forward.hpp"

namespace fa::internal {
namespace {

constexpr const char* kCpuLimits = "host memory; any D and Dv, any mask, any strides";

template <class P>
constexpr Row<P> cpu_row(Dtype dtype, const char* name, typename P::Reject* reject,
                         typename P::Workspace* workspace, typename P::Launch* launch) {
  return {.version = Version::CPU,
          .dtype = dtype,
          .name = name,
          .limits = kCpuLimits,
          .on_device = false,
          .built = true,
          .architectures = "",
          .stand_in = nullptr,
          .reject = reject,
          .workspace = workspace,
          .prepare = nullptr,
          .launch = launch};
}

constexpr ForwardRow cpu_forward(Dtype dtype, const char* name) {
  return cpu_row<Forward>(dtype, name, cpu::reject_forward, cpu::forward_workspace, cpu::launch_forward);
}

constexpr BackwardRow cpu_backward(Dtype dtype, const char* name) {
  return cpu_row<Backward>(dtype, name, cpu::reject_backward, cpu::backward_workspace, cpu::launch_backward);
}

// A room's functions, where this build holds its code.
template <class P>
struct Room {
  bool built = false;
  const char* architectures = "";
  typename P::Reject* reject = nullptr;
  typename P::Workspace* workspace = nullptr;
  typename P::Prepare* prepare = nullptr;
  typename P::Launch* launch = nullptr;
};

// cmake/FlashAttnRoom.cmake defines FLASHATTN_HAVE_<ROOM> and FLASHATTN_ARCHITECTURES_<ROOM>. A discarded
// branch names no function, so that a room left out needs no stand-ins.
#define FA_ROOM(Pass, pass, ROOM, scope)                \
  [] {                                                  \
    if constexpr (FLASHATTN_HAVE_##ROOM) {              \
      return Room<Pass>{true,                           \
                        FLASHATTN_ARCHITECTURES_##ROOM, \
                        scope::reject_##pass,           \
                        scope::pass##_workspace,        \
                        scope::prepare_##pass,          \
                        scope::launch_##pass};          \
    } else {                                            \
      return Room<Pass>{};                              \
    }                                                   \
  }()

constexpr Room<Forward> kV0 = FA_ROOM(Forward, forward, V0_UNFUSED, v0);
constexpr Room<Forward> kV1 = FA_ROOM(Forward, forward, V1_FLASH1, v1);
constexpr Room<Forward> kV2 = FA_ROOM(Forward, forward, V2_FLASH2, v2);
constexpr Room<Forward> kV3 = FA_ROOM(Forward, forward, V3_WARP_LOCAL, v3);
constexpr Room<Forward> kV4 = FA_ROOM(Forward, forward, V4_VECTORIZED, v4);
constexpr Room<Forward> kV5 = FA_ROOM(Forward, forward, V5_TENSOR_CORES, v5);
constexpr Room<Forward> kV6 = FA_ROOM(Forward, forward, V6_FAST_SOFTMAX, v6);
constexpr Room<Forward> kV7 = FA_ROOM(Forward, forward, V7_AMPERE, v7);
constexpr Room<Forward> kV8 = FA_ROOM(Forward, forward, V8_HOPPER, v8);
constexpr Room<Backward> kV2Backward = FA_ROOM(Backward, backward, V2_BACKWARD, v2_backward);

template <class P>
constexpr Row<P> device_row(const Room<P>& room, Version version, Dtype dtype, const char* name,
                            const char* limits, const char* stand_in = nullptr) {
  return {.version = version,
          .dtype = dtype,
          .name = name,
          .limits = limits,
          .on_device = true,
          .built = room.built,
          .architectures = room.architectures,
          .stand_in = stand_in,
          .reject = room.reject,
          .workspace = room.workspace,
          .prepare = room.prepare,
          .launch = room.launch};
}

constexpr const char* kV0Limits = "M = N; stores every score in the workspace; out float32";
constexpr const char* kV1Limits = "D + Dv up to 376 in 99 KB of shared memory, 888 in 227 KB; out float32";
constexpr const char* kV2Limits = "D and Dv up to 256";
constexpr const char* kV3Limits = "D = Dv = 64";
constexpr const char* kV4Limits = "D = Dv = 64; rows of q, k and v aligned to 16 bytes";
constexpr const char* kV7Limits = "D and Dv up to 256, even; rows of q, k and v aligned to 4 bytes";
constexpr const char* kV8Limits =
    "compute capability 9.0; D and Dv up to 256; rows of q, k, v and out aligned to 16 bytes; no stride 0; "
    "scale above 0; out of the inputs' type";

constexpr ForwardRow kForwardRows[] = {
    device_row(kV0, Version::V0, Dtype::float32, "v0_unfused", kV0Limits),
    device_row(kV1, Version::V1, Dtype::float32, "v1_flash1", kV1Limits),
    device_row(kV2, Version::V2, Dtype::float32, "v2_flash2_fp32", kV2Limits),
    device_row(kV2, Version::V2, Dtype::float16, "v2_flash2_fp16", kV2Limits),
    device_row(kV2, Version::V2, Dtype::bfloat16, "v2_flash2_bf16", kV2Limits),
    device_row(kV3, Version::V3, Dtype::float32, "v3_warp_local", kV3Limits, "v2_flash2_fp32"),
    device_row(kV4, Version::V4, Dtype::float32, "v4_vectorized_fp32", kV4Limits, "v2_flash2_fp32"),
    device_row(kV4, Version::V4, Dtype::float16, "v4_vectorized_fp16", kV4Limits),
    device_row(kV4, Version::V4, Dtype::bfloat16, "v4_vectorized_bf16", kV4Limits),
    device_row(kV5, Version::V5, Dtype::float16, "v5_tensor_cores_fp16", kV4Limits),
    device_row(kV5, Version::V5, Dtype::bfloat16, "v5_tensor_cores_bf16", kV4Limits),
    device_row(kV6, Version::V6, Dtype::float16, "v6_fast_softmax_fp16", kV4Limits),
    device_row(kV6, Version::V6, Dtype::bfloat16, "v6_fast_softmax_bf16", kV4Limits),
    device_row(kV7, Version::V7, Dtype::float16, "v7_ampere_fp16", kV7Limits, "v2_flash2_fp16"),
    device_row(kV7, Version::V7, Dtype::bfloat16, "v7_ampere_bf16", kV7Limits, "v2_flash2_bf16"),
    device_row(kV8, Version::V8, Dtype::float16, "v8_hopper_fp16", kV8Limits, "v7_ampere_fp16"),
    device_row(kV8, Version::V8, Dtype::bfloat16, "v8_hopper_bf16", kV8Limits, "v7_ampere_bf16"),
    cpu_forward(Dtype::float32, "cpu_fp32"),
    cpu_forward(Dtype::float16, "cpu_fp16"),
    cpu_forward(Dtype::bfloat16, "cpu_bf16"),
};

constexpr const char* kV2BackwardLimits = "D and Dv up to 256; gradients of any type";

constexpr BackwardRow kBackwardRows[] = {
    device_row(kV2Backward, Version::V2, Dtype::float32, "v2_backward_fp32", kV2BackwardLimits),
    device_row(kV2Backward, Version::V2, Dtype::float16, "v2_backward_fp16", kV2BackwardLimits),
    device_row(kV2Backward, Version::V2, Dtype::bfloat16, "v2_backward_bf16", kV2BackwardLimits),
    cpu_backward(Dtype::float32, "cpu_backward_fp32"),
    cpu_backward(Dtype::float16, "cpu_backward_fp16"),
    cpu_backward(Dtype::bfloat16, "cpu_backward_bf16"),
};

// What measured fastest first (README, "Measured"). V0 comes after V2: at D128 it is faster under a full
// mask, but slower under a causal one, which it does not skip, and it stores every score.
constexpr int kForwardAutoOrder[] = {6, 5, 2, 0, 1, 15, 13, 11, 9, 7, 3, 16, 14, 12, 10, 8, 4, 17, 18, 19};

constexpr int kBackwardAutoOrder[] = {0, 1, 2, 3, 4, 5};

template <class P>
constexpr bool agrees_with_exists(std::span<const Row<P>> rows) {
  size_t i = 0;
  for (const detail::Existing& row : detail::existing) {
    if (row.pass != P::kPass) continue;
    if (i == rows.size()) return false;
    if (rows[i].version != row.version || rows[i].dtype != row.dtype) return false;
    ++i;
  }
  return i == rows.size();
}
static_assert(agrees_with_exists<Forward>(kForwardRows) && agrees_with_exists<Backward>(kBackwardRows),
              "the kernel table and fa::exists (version.hpp) list the same rows");

template <size_t kRows>
constexpr bool names_every_row(const int (&order)[kRows]) {
  bool seen[kRows] = {};
  for (const int index : order) seen[index] = true;
  for (const bool one : seen) {
    if (!one) return false;
  }
  return true;
}
static_assert(std::size(kForwardAutoOrder) == std::size(kForwardRows) && names_every_row(kForwardAutoOrder) &&
                  std::size(kBackwardAutoOrder) == std::size(kBackwardRows) &&
                  names_every_row(kBackwardAutoOrder),
              "Auto tries every row, each once");

}  // namespace

std::span<const ForwardRow> forward_rows() {
  return kForwardRows;
}

std::span<const int> forward_auto_order() {
  return kForwardAutoOrder;
}

std::span<const BackwardRow> backward_rows() {
  return kBackwardRows;
}

std::span<const int> backward_auto_order() {
  return kBackwardAutoOrder;
}

}  // namespace fa::internal
