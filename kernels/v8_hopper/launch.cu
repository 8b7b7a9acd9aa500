#include "kernels/v8_hopper/launch.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/reject.hpp"
#include "kernels/v8_hopper/launch.cuh"
#include "kernels/v8_hopper/tensor_maps.hpp"

namespace fa::internal::v8 {
namespace {

// Calls f with the Tiles of the type and of the next head dimensions that hold D and Dv.
template <class T, class F>
auto with_head_dims(int64_t D, int64_t Dv, F f) {
  const int64_t head_dim = std::max(D, Dv);
  if (head_dim <= 64) return f(Tiles<T, 64, 64>{});
  if (head_dim <= 96) return f(Tiles<T, 96, 96>{});
  if (head_dim <= 128) return f(Tiles<T, 128, 128>{});
  if (head_dim <= 192 && Dv <= 128) return f(Tiles<T, 192, 128>{});
  if (head_dim <= 192) return f(Tiles<T, 192, 192>{});
  return f(Tiles<T, 256, 256>{});
}

template <class F>
auto with_tiles(Dtype dtype, int64_t D, int64_t Dv, F f) {
  if (dtype == Dtype::float16) return with_head_dims<__half>(D, Dv, f);
  return with_head_dims<__nv_bfloat16>(D, Dv, f);
}

template <class... ChoiceTypes>
constexpr int largest_shared_bytes(Choices<ChoiceTypes...>) {
  return std::max({kSharedBytes<typename ChoiceTypes::Config>...});
}

template <class... ChoiceTypes>
constexpr int smallest_query_tile(Choices<ChoiceTypes...>) {
  return std::min({ChoiceTypes::Config::kBlockM...});
}

constexpr int64_t kLargestStride = int64_t{1} << 39;  // elements: a tensor map takes less than 2^40 bytes

// What a tensor map cannot say of a tensor [B, heads, rows, features].
std::string reject_strides(const char* name, const Strides& stride, int64_t B, int64_t heads, int64_t rows) {
  if (rows == 0) return "";
  const struct {
    const char* dimension;
    int64_t stride, size;
  } strides[] = {{"batch", stride.batch, B}, {"head", stride.head, heads}, {"sequence", stride.seq, rows}};
  for (const auto& [dimension, elements, size] : strides) {
    if (size <= 1) continue;
    if (elements == 0 || elements >= kLargestStride) {
      return std::string("copies by tensor map, which takes no ") + dimension + " stride of " +
             std::to_string(elements) + " (" + name + ")";
    }
  }
  return "";
}

// The query heads of a group as the rows of one head, so that few queries fill a tile and a group's keys are
// read once: where strides alone can say it, and rows need no mask of their own. A single query's keys are
// those between two bounds; more queries are one run of rows where a head follows the one before it. LSE lies
// in that order already.
ForwardParams pack_group(const ForwardParams& given) {
  ForwardParams p = given;
  const auto one_run = [&](const Strides& stride) { return stride.head == p.M * stride.seq; };
  const auto fits = [&](const Strides& stride) { return stride.head * p.group < kLargestStride; };
  // Sums of two row numbers stay within 32 bits.
  if (int64_t{p.M} * p.group > int64_t{1} << 30) return p;
  if (p.group == 1 || p.M >= 64 || !fits(p.q_stride) || !fits(p.out_stride)) return p;
  if (p.M > 1 && !(sees_all_keys(p) && one_run(p.q_stride) && one_run(p.out_stride))) return p;
  if (p.M == 1) {
    const int first = std::max(p.window_lo, 0), last = std::min(p.window_hi, p.N - 1);
    const auto from_first = [&](const void* keys, const Strides& stride) {
      return static_cast<const char*>(keys) + 2 * int64_t{first} * stride.seq;
    };
    p.N = std::max(last + 1 - first, 0);
    if (p.N > 0) {
      p.k = from_first(p.k, p.k_stride);
      p.v = from_first(p.v, p.v_stride);
    }
    p.q_stride.seq = p.q_stride.head;
    p.out_stride.seq = p.out_stride.head;
  }
  p.q_stride.head *= p.group;
  p.out_stride.head *= p.group;
  p.M *= p.group;
  p.H = p.Hk;
  p.group = 1;
  p.window_lo = -p.M;
  p.window_hi = p.N;
  return p;
}

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  if (encode_tiled() == nullptr) return "needs a driver for CUDA 12.0 or later";
  const std::string too_wide = reject_head_dims_above(problem, 256);
  if (!too_wide.empty()) return too_wide;
  if (!(problem.scale > 0)) return "takes a scale above 0, but scale = " + std::to_string(problem.scale);
  if (problem.dtype_out != problem.dtype) return "writes out in the type of q, k and v alone";
  std::string reason = reject_unaligned(problem);
  if (reason.empty() && problem.out_alignment < 16) {
    reason = "needs rows aligned to 16 bytes, but rows of out are aligned to " +
             std::to_string(problem.out_alignment);
  }
  if (reason.empty()) reason = reject_strides("q", problem.q, problem.B, problem.H, problem.M);
  if (reason.empty()) reason = reject_strides("k", problem.k, problem.B, problem.Hk, problem.N);
  if (reason.empty()) reason = reject_strides("v", problem.v, problem.B, problem.Hk, problem.N);
  if (reason.empty()) reason = reject_strides("out", problem.out, problem.B, problem.H, problem.M);
  if (!reason.empty()) return reason;
  return with_tiles(problem.dtype, problem.D, problem.Dv, [&](auto tiles) {
    const std::string too_large = reject_shared_memory(largest_shared_bytes(tiles), device);
    return too_large.empty() ? reject_grid(problem, smallest_query_tile(tiles)) : too_large;
  });
}

int prepare_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  return with_tiles(problem.dtype, problem.D, problem.Dv,
                    [&](auto tiles) { return prepare<decltype(tiles)>(device); });
}

int launch_forward(const ForwardParams& given, const LaunchContext& context, Dtype dtype_in, Dtype) {
  const ForwardParams params = pack_group(given);
  return with_tiles(dtype_in, params.D, params.Dv,
                    [&](auto tiles) { return launch<decltype(tiles)>(params, dtype_in, context); });
}

}  // namespace fa::internal::v8
