#include "src/cpu/backward.hpp"

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

  static int64_t tiles_of(int64_t rows) { return (rows + kBlockM - 1) / kBlockM; }

  int64_t rows() const { return B * H * M; }           // of all heads
  int64_t query_rows() const { return M * (H / Hk); }  // of one key head
  int64_t query_tiles() const { return tiles_of(query_rows()); }
  int64_t key_tiles() const { return tiles_of(N); }
  int64_t heads() const { return B * Hk; }
  int64_t items() const { return heads() * (query_tiles() + key_tiles()); }

  int64_t visible_keys(int64_t query) const {
    const int64_t first = std::max<int64_t>(0, query + window_lo);
    const int64_t last = std::min<int64_t>(N - 1, query + window_hi);
    return std::max<int64_t>(0, last - first + 1);
  }
  bool later_queries_see_more() const { return M > 0 && visible_keys(M - 1) > visible_keys(0); }
};

template <class Problem>
Sizes sizes_of(const Problem& p) {
  return {p.B, p.H, p.Hk, p.M, p.N, p.D, p.Dv, p.window_lo, p.window_hi};
}

// How many threads `multiply_adds` are worth, for so many items of work.
int thread_count(double multiply_adds, int64_t items, int threads) {
  const double most = std::min(static_cast<double>(threads), static_cast<double>(items));
  return static_cast<int>(std::clamp(multiply_adds / kWorthAThread, 1.0, std::max(1.0, most)));
}

int tile_threads(const Sizes& sizes, int threads) {
  if (sizes.M == 0 || sizes.N == 0) return 1;
  const double mean_keys =
      (static_cast<double>(sizes.visible_keys(0)) + static_cast<double>(sizes.visible_keys(sizes.M / 2)) +
       static_cast<double>(sizes.visible_keys(sizes.M - 1))) /
      3;
  // S and dP twice, dQ, dK and dV once.
  const double pair = static_cast<double>(4 * sizes.D + 3 * sizes.Dv);
  return thread_count(static_cast<double>(sizes.rows()) * mean_keys * pair, sizes.items(), threads);
}

int64_t whole_lines(int64_t floats) {  // of 64 bytes
  return (floats + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

// Lays a thread's scratch out in memory, or only counts: `floats` is the end.
struct ScratchPlan {
  BackwardScratch scratch;
  size_t floats = 0;

  ScratchPlan(const Sizes& sizes, float* memory) {
    const int64_t columns = kBlockM, D = sizes.D, Dv = sizes.Dv;
    const auto take = [&](int64_t count) {
      float* const part = memory == nullptr ? nullptr : memory + floats;
      floats += static_cast<size_t>(whole_lines(count));
      return part;
    };
    scratch.lane_qk = take(D * columns);
    scratch.lane_ov = take(Dv * columns);
    scratch.block_qk = take(kBlockN * D);
    scratch.block_ov = take(kBlockN * Dv);
    scratch.score = take(kBlockN * columns);
    scratch.score_grad = take(kBlockN * columns);
    scratch.gradient_qk = take(D * columns);
    scratch.gradient_v = take(Dv * columns);
    scratch.row = take(std::max(D, Dv));
    const int64_t queries = std::max<int64_t>(columns, kBlockN);
    scratch.lse = take(queries);
    scratch.delta = take(queries);
    scratch.first = take(queries);
    scratch.last = take(queries);
    scratch.lane = take(columns);
  }
};

float element(Dtype dtype, const void* base, int64_t index) {
  switch (dtype) {
    case Dtype::float16:
      return detail::half_value(static_cast<const uint16_t*>(base)[index]);
    case Dtype::bfloat16:
      return detail::bfloat16_value(static_cast<const uint16_t*>(base)[index]);
    default:
      return static_cast<const float*>(base)[index];
  }
}

// Delta = rowsum(dO o O) of rows [begin, end) of all B H M. Summed in double: a row's Delta meets every key's
// dP, and the difference is what is left of both.
void delta_rows(const BackwardParams& params, Dtype dtype, int64_t begin, int64_t end, float* delta) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t head = row / params.M, query = row % params.M;
    const int64_t batch = head / params.H;
    const auto offset = [&](const Strides& stride) {
      return batch * stride.batch + head % params.H * stride.head + query * stride.seq;
    };
    const int64_t out = offset(params.out_stride), dout = offset(params.dout_stride);
    double sum = 0;
    for (int64_t d = 0; d < params.Dv; ++d) {
      sum += static_cast<double>(element(dtype, params.out, out + d)) *
             static_cast<double>(element(dtype, params.dout, dout + d));
    }
    delta[row] = static_cast<float>(sum);
  }
}

void compute_delta(const BackwardParams& params, const Sizes& sizes, Dtype dtype, int threads, float* delta) {
  constexpr int64_t kChunk = 256;
  const int64_t rows = sizes.rows(), chunks = (rows + kChunk - 1) / kChunk;
  // A product of two elements, widened and summed in double, takes as long as some ten vectorised ones.
  const double work = 10.0 * static_cast<double>(rows) * static_cast<double>(sizes.Dv);
  std::atomic<int64_t> next{0};
  on_threads(thread_count(work, chunks, threads), [&](int) {
    for (int64_t chunk = next.fetch_add(1); chunk < chunks; chunk = next.fetch_add(1)) {
      delta_rows(params, dtype, chunk * kChunk, std::min(rows, (chunk + 1) * kChunk), delta);
    }
  });
}

// The tiles of all heads, handed out one by one: head by head, since a head's tiles share what they read, and
// of one kind the longest first.
class Queue {
 public:
  Queue(const Sizes& sizes, const float* delta)
      : sizes_(sizes), delta_(delta), descending_(sizes.later_queries_see_more()) {}

  // False: there are no more. of_keys: the tile is one of dK and dV.
  bool next(BackwardTile& tile, bool& of_keys) {
    const int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item >= sizes_.items()) return false;
    const int64_t per_head = sizes_.key_tiles() + sizes_.query_tiles();
    const int64_t head = item / per_head;
    int64_t place = item % per_head;
    of_keys = place < sizes_.key_tiles();
    if (!of_keys) {
      place -= sizes_.key_tiles();
      if (descending_) place = sizes_.query_tiles() - 1 - place;
    }
    const int64_t rows = of_keys ? sizes_.N : sizes_.query_rows();
    tile.batch = head / sizes_.Hk;
    tile.kv_head = head % sizes_.Hk;
    tile.row = place * kBlockM;
    tile.rows = static_cast<int>(std::min<int64_t>(kBlockM, rows - tile.row));
    tile.delta = delta_;
    return true;
  }

 private:
  const Sizes sizes_;
  const float* const delta_;
  const bool descending_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::string reject_backward(const BackwardProblem&, const DeviceProperties&) {
  return {};
}

size_t backward_workspace(const BackwardProblem& problem, const DeviceProperties&, int threads) {
  const Sizes sizes = sizes_of(problem);
  if (sizes.items() == 0) return 0;
  const size_t scratch =
      static_cast<size_t>(tile_threads(sizes, threads)) * ScratchPlan(sizes, nullptr).floats;
  return (static_cast<size_t>(whole_lines(sizes.rows())) + scratch) * sizeof(float);
}

int launch_backward(const BackwardParams& params, const LaunchContext& context, Dtype dtype_in,
                    Dtype dtype_gradient) {
  const Sizes sizes = sizes_of(params);
  if (sizes.items() == 0) return 0;

  float* const delta = static_cast<float*>(params.workspace);
  float* const memory = delta + whole_lines(sizes.rows());
  compute_delta(params, sizes, dtype_in, context.threads, delta);

  const size_t floats = ScratchPlan(sizes, nullptr).floats;
  Queue queue(sizes, delta);
  on_threads(tile_threads(sizes, context.threads), [&](int thread) {
    const BackwardScratch scratch = ScratchPlan(sizes, memory + static_cast<size_t>(thread) * floats).scratch;
    BackwardTile tile;
    for (bool of_keys = false; queue.next(tile, of_keys);) {
      const auto run = of_keys ? tile_kernel().backward_keys : tile_kernel().backward_queries;
      run(params, tile, dtype_in, dtype_gradient, scratch);
    }
  });
  return 0;
}

}  // namespace fa::internal::cpu
