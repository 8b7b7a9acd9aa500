#include "src/kernel_table.hpp"

#include <iterator>

#include "kernels/v0_unfused/launch.hpp"
#include "kernels/v1_flash1/launch.hpp"
#include "kernels/v2_flash2/launch.hpp"
#include "kernels/v3_warp_local/launch.hpp"
#include "kernels/v4_vectorized/launch.hpp"
#include "kernels/v5_tensor_cores/launch.hpp"
#include "kernels/v6_fast_softmax/launch.hpp"
#include "kernels/v7_ampere/launch.hpp"
#include "src/cpu/forward.hpp"

namespace fa::internal {
namespace {

constexpr ForwardRow cpu_row(Dtype dtype, const char* name) {
  return {.version = Version::CPU,
          .dtype = dtype,
          .name = name,
          .limits = "host memory; any D and Dv, any mask, any strides",
          .on_device = false,
          .built = true,
          .architectures = "",
          .stand_in = nullptr,
          .reject = cpu::reject_forward,
          .workspace = cpu::forward_workspace,
          .prepare = nullptr,
          .launch = cpu::launch_forward};
}

// A room's functions, where this build holds its code.
struct Room {
  bool built = false;
  const char* architectures = "";
  RejectForward* reject = nullptr;
  ForwardWorkspace* workspace = nullptr;
  PrepareForward* prepare = nullptr;
  LaunchForward* launch = nullptr;
};

// cmake/FlashAttnRoom.cmake defines FLASHATTN_HAVE_<ROOM> and FLASHATTN_ARCHITECTURES_<ROOM>. A discarded
// branch names no function, so that a room left out needs no stand-ins.
#define FA_ROOM(ROOM, scope)                      \
  [] {                                            \
    if constexpr (FLASHATTN_HAVE_##ROOM) {        \
      return Room{true,                           \
                  FLASHATTN_ARCHITECTURES_##ROOM, \
                  scope::reject_forward,          \
                  scope::forward_workspace,       \
                  scope::prepare_forward,         \
                  scope::launch_forward};         \
    } else {                                      \
      return Room{};                              \
    }                                             \
  }()

constexpr Room kV0 = FA_ROOM(V0_UNFUSED, v0);
constexpr Room kV1 = FA_ROOM(V1_FLASH1, v1);
constexpr Room kV2 = FA_ROOM(V2_FLASH2, v2);
constexpr Room kV3 = FA_ROOM(V3_WARP_LOCAL, v3);
constexpr Room kV4 = FA_ROOM(V4_VECTORIZED, v4);
constexpr Room kV5 = FA_ROOM(V5_TENSOR_CORES, v5);
constexpr Room kV6 = FA_ROOM(V6_FAST_SOFTMAX, v6);
constexpr Room kV7 = FA_ROOM(V7_AMPERE, v7);

constexpr ForwardRow device_row(const Room& room, Version version, Dtype dtype, const char* name,
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
constexpr const char* kV7Limits =
    "D and Dv up to 256, multiples of 8; rows of q, k and v aligned to 16 bytes";

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
    cpu_row(Dtype::float32, "cpu_fp32"),
    cpu_row(Dtype::float16, "cpu_fp16"),
    cpu_row(Dtype::bfloat16, "cpu_bf16"),
};

// What measured fastest first (README, "Measured"). V0 comes after V2: faster at S1024 and S2048 under a full
// mask, but slower under a causal one, which it does not skip, and it stores every score.
constexpr int kForwardAutoOrder[] = {6, 5, 2, 0, 1, 13, 11, 9, 7, 3, 14, 12, 10, 8, 4, 15, 16, 17};

constexpr bool agrees_with_exists() {
  size_t i = 0;
  for (const detail::Existing& row : detail::existing) {
    if (row.pass != Pass::forward) continue;
    if (i == std::size(kForwardRows)) return false;
    if (kForwardRows[i].version != row.version || kForwardRows[i].dtype != row.dtype) return false;
    ++i;
  }
  return i == std::size(kForwardRows);
}
static_assert(agrees_with_exists(), "the kernel table and fa::exists (version.hpp) list the same rows");
constexpr bool names_every_row() {
  bool seen[std::size(kForwardRows)] = {};
  for (const int index : kForwardAutoOrder) seen[index] = true;
  for (const bool one : seen) {
    if (!one) return false;
  }
  return std::size(kForwardAutoOrder) == std::size(kForwardRows);
}
static_assert(names_every_row(), "Auto tries every row, each once");

}  // namespace

std::span<const ForwardRow> forward_rows() {
  return kForwardRows;
}

std::span<const int> forward_auto_order() {
  return kForwardAutoOrder;
}

}  // namespace fa::internal
