#include "src/cpu/forward.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "src/cpu/threads.hpp"
#include "src/cpu/tile.hpp"

namespace fa::internal::cpu {
namespace {

// The sizes that fix the work and the scratch, from the problem or its params alike.
struct Sizes {
  int64_t B, H, Hk, M, N, D, Dv;
  int64_t window_lo, window_hi;
  bool widens;  // K and V are 16-bit

  int64_t rows() const { return M * (H / Hk); }  // of one key head
  int64_t tiles() const { return (rows() + kBlockM - 1) / kBlockM; }
  int64_t items() const { return B * Hk * tiles(); }
  int64_t columns() const {
    return std::min<int64_t>(kBlockM, (rows() + kMaxLanes - 1) / kMaxLanes * kMaxLanes);
  }

  int64_t visible_keys(int64_t query) const {
    const int64_t first = std::max<int64_t>(0, query + window_lo);
    const int64_t last = std::min<int64_t>(N - 1, query + window_hi);
    return std::max<int64_t>(0, last - first + 1);
  }
};

Sizes sizes_of(const ForwardProblem& p) {
  return {p.B, p.H, p.Hk, p.M, p.N, p.D, p.Dv, p.window_lo, p.window_hi, p.dtype != Dtype::float32};
}

Sizes sizes_of(const ForwardParams& p, Dtype dtype_in) {
  return {p.B, p.H, p.Hk, p.M, p.N, p.D, p.Dv, p.window_lo, p.window_hi, dtype_in != Dtype::float32};
}

// How many threads the work is worth.
int thread_count(const Sizes& sizes, int threads) {
  const double mean_keys =
      (static_cast<double>(sizes.visible_keys(0)) + static_cast<double>(sizes.visible_keys(sizes.M / 2)) +
       static_cast<double>(sizes.visible_keys(sizes.M - 1))) /
      3;
  const double columns = static_cast<double>(sizes.items()) * static_cast<double>(sizes.columns());
  const double work = columns * mean_keys * static_cast<double>(sizes.D + sizes.Dv);
  const double most = std::min(static_cast<double>(threads), static_cast<double>(sizes.items()));
  return static_cast<int>(std::clamp(work / kWorthAThread, 1.0, std::max(1.0, most)));
}

// Lays a thread's Scratch out in memory, or only counts: `floats` is the end.
struct ScratchPlan {
  Scratch scratch;
  size_t floats = 0;

  ScratchPlan(const Sizes& sizes, float* memory) {
    const int64_t columns = sizes.columns();
    const int64_t features = std::max(sizes.D, sizes.Dv);
    const auto take = [&](int64_t count) {
      float* const part = memory == nullptr ? nullptr : memory + floats;
      floats += (static_cast<size_t>(count) + kMaxLanes - 1) / kMaxLanes * kMaxLanes;  // 64-byte aligned
      return part;
    };
    scratch.query = take(sizes.D * columns);
    scratch.score = take(kBlockN * columns);
    scratch.output = take(sizes.Dv * columns);
    scratch.key_value = sizes.widens ? take(kBlockN * features) : nullptr;
    scratch.row = take(features);
    scratch.m = take(columns);
    scratch.l = take(columns);
    scratch.alpha = take(columns);
    scratch.block_max = take(columns);
    scratch.first = take(columns);
    scratch.last = take(columns);
  }
};

// The tiles of all heads, handed out one by one: the tiles of a head together, since they share K and V, and
// of those the longest first, so that the last ones, which the threads end on, are short.
class Queue {
 public:
  explicit Queue(const Sizes& sizes)
      : sizes_(sizes), descending_(sizes.visible_keys(sizes.M - 1) > sizes.visible_keys(0)) {}

  bool next(Tile& tile) {
    const int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= sizes_.items()) return false;
    const int64_t head = item / sizes_.tiles();
    const int64_t place = item % sizes_.tiles();
    tile.batch = head / sizes_.Hk;
    tile.kv_head = head % sizes_.Hk;
    tile.row = (descending_ ? sizes_.tiles() - 1 - place : place) * kBlockM;
    tile.rows = static_cast<int>(std::min<int64_t>(kBlockM, sizes_.rows() - tile.row));
    return true;
  }

 private:
  const Sizes sizes_;
  const bool descending_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::string reject_forward(const ForwardProblem&, const DeviceProperties&) {
  return {};
}

size_t forward_workspace(const ForwardProblem& problem, const DeviceProperties&, int threads) {
  const Sizes sizes = sizes_of(problem);
  if (sizes.items() == 0) return 0;
  return static_cast<size_t>(thread_count(sizes, threads)) * ScratchPlan(sizes, nullptr).floats *
         sizeof(float);
}

int launch_forward(const ForwardParams& params, const LaunchContext& context, Dtype dtype_in,
                   Dtype dtype_out) {
  const Sizes sizes = sizes_of(params, dtype_in);
  if (sizes.items() == 0) return 0;

  Queue queue(sizes);
  const auto work = [&](int thread) {
    const size_t floats = ScratchPlan(sizes, nullptr).floats;
    float* const memory = static_cast<float*>(params.workspace) + static_cast<size_t>(thread) * floats;
    const Scratch scratch = ScratchPlan(sizes, memory).scratch;
    for (Tile tile; queue.next(tile);) tile_kernel().run(params, tile, dtype_in, dtype_out, scratch);
  };

  on_threads(thread_count(sizes, context.threads), work);
  return 0;
}

const TileKernel& tile_kernel() {
  static const TileKernel& chosen = highway_kernel() != nullptr ? *highway_kernel() : plain_kernel();
  return chosen;
}

const char* simd_target() {
  return tile_kernel().target;
}

const char* simd_library() {
  return highway_version() != nullptr ? highway_version() : "plain";
}

}  // namespace fa::internal::cpu
