/// V8: Hopper's tensor cores and copy engine. One thread loads by TMA and one stores; the warpgroups beside
/// them compute 64 query rows each by wgmma, whose products run while the warpgroup goes on: S of the next
/// key tile and P V of this one are under way together, where registers hold both, the softmax runs below P
/// V, and the warpgroups take turns at the tensor cores, so that one's softmax runs below another's products
/// too.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/query_tile.cuh"
#include "kernels/device/attention/wgmma_rows.cuh"
#include "kernels/device/ptx/named_barrier.cuh"
#include "kernels/device/ptx/pin.cuh"
#include "kernels/device/ptx/set_max_registers.cuh"
#include "kernels/device/ptx/stores.cuh"
#include "kernels/device/ptx/tma.cuh"
#include "kernels/device/tile/pipeline.cuh"
#include "kernels/v8_hopper/config.cuh"

namespace fa::internal::v8 {

struct TensorMaps {
  CUtensorMap q, k, v, out;
};

/// Named barriers, each followed by those of the other consumers.
enum Barrier : int { kTurn = 1, kPassing = 5 };

/// A block's query tiles, one after the other.
template <class Config>
struct Walk {
  const ForwardParams& p;
  const RoundOrder& order;
  int round = -1;
  int query0 = 0;                     // negative of a first tile with rows_ahead
  int head = 0;                       // of B x H
  int first_tile = 0, last_tile = 0;  // of keys; last_tile < first_tile: no row sees a key

  __device__ Walk(const ForwardParams& params, const RoundOrder& order_of) : p(params), order(order_of) {}

  __device__ bool next() {
    while (true) {
      ++round;
      const int group = divide(round, order.rounds);
      if (group >= order.groups) return false;
      const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
      const int round_of_group = round - group * order.rounds.value;
      const bool is_forth = (round_of_group + group) % 2 == 0;
      const int i = round_of_group * blocks + (is_forth ? block : blocks - 1 - block);
      const Divisor heads = group + 1 == order.groups ? order.last_group_heads : order.group_heads;
      const int tile = divide(i, heads);
      if (tile >= order.query_tiles) continue;
      head = group * order.group_heads.value + i - tile * heads.value;
      query0 = (order.query_tiles - 1 - tile) * Config::kBlockM - order.rows_ahead;
      const BlockRange<Config::kBlockN> range(window_of(p), max(query0, 0),
                                              min(query0 + Config::kBlockM, p.M) - 1);
      first_tile = range.begin;
      last_tile = range.end - 1;
      return true;
    }
  }
  __device__ bool has_keys() const { return first_tile <= last_tile; }
  __device__ int key_tiles() const { return has_keys() ? last_tile - first_tile + 1 : 0; }
  __device__ int b() const { return divide(head, order.H); }
  __device__ int h() const { return head - b() * order.H.value; }
};

/// Starts the copy of rows from `row` on of head h of batch b, as boxes of 64 columns which follow each other
/// in shared memory; their bytes count on the barrier `full`.
template <int kBoxes>
__device__ void copy_rows(const void* place, const CUtensorMap& map, int box_bytes, int row, int h, int b,
                          uint32_t full) {
  const uint32_t shared = ptx::shared_address(place);
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    ptx::tma_load(shared + box * box_bytes, map, {box * kBoxColumns, row, h, b}, full);
  }
}

/// Before the block's n-th query tile, counted from 0: waits until O of the one before has left the place. O
/// of the n-th must not be stored until the waiter is through: a parity tells a phase from the next alone.
template <class Config>
__device__ void wait_stored(const SharedTiles<Config>& s, int place, int n) {
  if (n > 0) ptx::mbarrier_wait(ptx::shared_address(&s.stored[place]), (n - 1) % 2);
}

/// The producer, one thread. Key tiles go from the last to the first: those that the mask's edge crosses come
/// first, when no product runs yet that they could delay.
template <class Config>
__device__ void copy_tiles(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                           const RoundOrder& order) {
  Pipeline<1> q(s.q);
  Pipeline<Config::kStages> k(s.k), v(s.v);
  Walk<Config> walk(p, order);
  for (int n = 0; walk.next(); ++n) {
    // Stages of V, where O may still be. That they are free is said before this tile's O is stored.
    int places_left = Config::kHasOutputPlace ? 0 : Config::kStages;
    const auto wait_for_place = [&](int place) {
      if (places_left == 0) return;
      wait_stored(s, place, n);
      if (--places_left > 0) return;
      for (uint64_t& written : s.written) ptx::mbarrier_arrive(ptx::shared_address(&written));
    };
    if (!walk.has_keys()) {
      for (int place = 0; place < Config::kStages; ++place) wait_for_place(place);
      continue;
    }
    const int b = walk.b(), h = walk.h();
    const int key_head = divide(h, order.heads_per_key_head);
    const auto copy_keys = [&](int tile) {
      const uint32_t full = k.fill(Config::kBoxes * Config::kBytesN);
      copy_rows<Config::kBoxes>(s.K[k.stage()], maps.k, Config::kBytesN, tile * Config::kBlockN, key_head, b,
                                full);
      k.advance();
    };
    const auto copy_values = [&](int tile) {
      wait_for_place(v.stage());
      const uint32_t full = v.fill(Config::kBoxesV * Config::kBytesN);
      copy_rows<Config::kBoxesV>(s.V[v.stage()], maps.v, Config::kBytesN, tile * Config::kBlockN, key_head, b,
                                 full);
      v.advance();
    };
    // In the order in which the consumers want them; Q's place is free later than K's.
    int tile = walk.last_tile;
    copy_keys(tile);
    const uint32_t full = q.fill(Config::kBoxes * Config::kBytesM);
    copy_rows<Config::kBoxes>(s.Q, maps.q, Config::kBytesM, walk.query0, h, b, full);
    q.advance();
    for (; tile > walk.first_tile; --tile) {
      copy_keys(tile - 1);
      copy_values(tile);
    }
    copy_values(tile);
    wait_for_place(v.stage());  // of a single key tile: the other one
  }
}

/// Where a consumer's rows of O lie in shared memory, as boxes of 64 columns which follow each other.
template <class Config>
__device__ unsigned char* output_place(SharedTiles<Config>& s, int place) {
  if constexpr (Config::kHasOutputPlace)
    return reinterpret_cast<unsigned char*>(&s.O[place]);
  else
    return reinterpret_cast<unsigned char*>(&s.V[place]);
}

/// Stores what the consumer leaves in a place of shared memory as O of the block's n-th query tile. One
/// thread; the other warps of the consumer may be on their way.
template <class Config>
__device__ void store_output(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                             const Walk<Config>& walk, int n, int consumer, int place) {
  const int query0 = walk.query0 + kConsumerRows * consumer;
  ptx::mbarrier_wait(ptx::shared_address(&s.written[consumer]), n % 2);
  if (query0 >= 0 && mapped_features(p.Dv) > 0) {
    const uint32_t boxes = ptx::shared_address(output_place(s, place));
    const int b = walk.b(), h = walk.h();
#pragma unroll
    for (int box = 0; box < Config::kBoxesV; ++box) {
      ptx::tma_store(maps.out, {box * kBoxColumns, query0, h, b}, boxes + box * Config::kOutputBoxBytes);
    }
    ptx::tma_store_commit();
    ptx::tma_store_wait_read();
  }
  ptx::mbarrier_arrive(ptx::shared_address(&s.stored[place]));
}

/// Stores what all consumers leave. One thread.
template <class Config>
__device__ void store_tiles(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                            const RoundOrder& order) {
  Walk<Config> walk(p, order);
  int stage = 0;  // of V, which the next key tile gets
  for (int n = 0; walk.next(); ++n) {
    stage = (stage + walk.key_tiles()) % Config::kStages;
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      const int place = Config::kHasOutputPlace ? consumer : (stage + consumer) % Config::kStages;
      store_output(s, maps, p, walk, n, consumer, place);
    }
  }
}

/// Threads of a consumer that say O is written: a warp's first for all. Through the stages of V, whose next
/// writer may be another consumer, every thread speaks for itself: racecheck of compute-sanitizer takes an
/// arrival to order the accesses of the thread that arrives, and no other's.
template <class Config>
inline constexpr int kWrittenArrivals = Config::kHasOutputPlace ? 4 : 128;

/// O of the warpgroup's rows, normalised, to shared memory, and LSE.
template <class Config>
__device__ void write_output(const WgmmaRows<Config>& rows, SharedTiles<Config>& s, const ForwardParams& p,
                             const Schedule& schedule, int query0, int head, int consumer, int place) {
  using T = typename Config::Element;
  int thread = static_cast<int>(threadIdx.x) % 128;
  ptx::pin(thread);  // else the addresses below are computed ahead of the tiles' loop, and spilled
  const int lane = thread % 32;
  const int warp_row0 = thread / 32 * 16;  // of the warpgroup's 64
  float normalise[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float l = group_sum<4>(rows.l[0][half]);
    normalise[half] = rows.normalisation(0, half, l, schedule.scale.log2);
    const int query = query0 + warp_row0 + lane / 4 + 8 * half;
    if (p.lse != nullptr && lane % 4 == 0 && query >= 0 && query < p.M) {
      p.lse[static_cast<int64_t>(head) * p.M + query] = log_sum_exp2(rows.R[0][half], l);
    }
  }
  const uint32_t boxes = ptx::shared_address(output_place(s, place));
#pragma unroll
  for (int c = 0; c < WgmmaRows<Config>::kColumns; ++c) {
    const uint32_t box = boxes + c / 8 * Config::kOutputBoxBytes + warp_row0 * kBoxRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ptx::store_shared(
          box + box_offset(lane / 4 + 8 * half, c % 8) + lane % 4 * 4,
          pack<T>(rows.O[0][c][2 * half] * normalise[half], rows.O[0][c][2 * half + 1] * normalise[half]));
    }
  }
  ptx::fence_async_proxy();
  __syncwarp();
  // What the map of out does not hold of a row is a lane's.
  const int whole = mapped_features(p.Dv), query = query0 + warp_row0 + lane;
  if (whole != p.Dv && lane < 16 && query >= 0 && query < p.M) {
    const unsigned char* const box = output_place(s, place) + whole / kBoxColumns * Config::kOutputBoxBytes;
    const T* const rest =
        reinterpret_cast<const T*>(box + box_offset(warp_row0 + lane, whole % kBoxColumns / 8));
    const int b = divide(head, schedule.order.H), h = head - b * schedule.order.H.value;
    T* const to = static_cast<T*>(p.out) + b * p.out_stride.batch + h * p.out_stride.head +
                  query * p.out_stride.seq + whole;
    for (int e = 0; whole + e < p.Dv; ++e) to[e] = rest[e];
  }
  __syncwarp();
  if (lane < kWrittenArrivals<Config> / 4) ptx::mbarrier_arrive(ptx::shared_address(&s.written[consumer]));
}

/// Consumers start their products in turn, so that the softmax of one runs below the products of another.
template <class Config>
class Turns {
  int mine_, next_;

 public:
  __device__ explicit Turns(int consumer)
      : mine_(kTurn + consumer), next_(kTurn + (consumer + 1 == Config::kConsumers ? 0 : consumer + 1)) {
    if (consumer == 0) ptx::barrier_arrive(kTurn, 256);
  }
  __device__ void take() const { ptx::barrier_sync(mine_, 256); }
  __device__ void pass() const { ptx::barrier_arrive(next_, 256); }
};

/// The rings of tiles, by what is in them.
enum class Ring { q, k, v };

/// The last key tile of which one of a consumer's rows, from first_row on, sees a key; of rows that see none,
/// and of a consumer without rows, any.
template <class Config>
__device__ int last_key_tile(const ForwardParams& p, int first_row) {
  if (first_row < 0) return 0;
  return BlockRange<Config::kBlockN>(window_of(p), first_row, min(first_row + kConsumerRows, p.M) - 1).end -
         1;
}

/// A consumer: its kConsumerRows rows of each query tile. after_release(ring) follows the release
/// of each stage, by all threads, and after_output(walk, n) what it leaves of the n-th query tile.
template <class Config, class AfterRelease, class AfterOutput>
__device__ void compute_tiles(SharedTiles<Config>& s, const ForwardParams& p, const Schedule& schedule,
                              int consumer, AfterRelease after_release, AfterOutput after_output) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int row0 = kConsumerRows * consumer;
  Pipeline<1> q(s.q);
  Pipeline<Config::kStages> k(s.k), v(s.v);
  const uint32_t sQ = tile_descriptor(ptx::shared_address(&s.Q[0][row0][0]), 0);
  const uint32_t sK0 = tile_descriptor(ptx::shared_address(s.K), 0);
  const uint32_t sV0 = tile_descriptor(ptx::shared_address(s.V), Config::kBytesN);
  const auto sK = [&] { return sK0 + k.stage() * (Config::kBoxes * Config::kBytesN / 16); };
  const auto sV = [&] { return sV0 + v.stage() * (Config::kBoxesV * Config::kBytesN / 16); };
  const auto release = [&](auto& pipeline, Ring ring) {
    if (thread == 0) pipeline.release();
    pipeline.advance();
    after_release(ring);
  };
  const Turns<Config> turns(consumer);

  Walk<Config> walk(p, schedule.order);
  for (int n = 0; walk.next(); ++n) {
    WgmmaRows<Config> rows;
    if (walk.has_keys()) {
      int warp = thread / 32;
      ptx::pin(warp);  // else it is computed ahead of all tiles, and spilled
      const int query0 = walk.query0 + row0 + 16 * warp;
      const int first_row = min(max(query0, 0), p.M - 1);
      const int last_row = max(first_row, min(query0 + 16, p.M) - 1);
      const BlockRange<Config::kBlockN> range(window_of(p), first_row, last_row);
      const auto softmax = [&](int tile) {
        if (!range.is_full(tile)) rows.mask_scores(window_of(p), query0, tile * Config::kBlockN);
        rows.softmax(schedule.scale.log2);
      };

      int tile = walk.last_tile;
      q.wait_full();
      // Tiles of which this consumer's rows see no key pass by, but for the first: V one tile behind K, as
      // both arrive. A stage is released once all warps have seen it full, with turns or without.
      const int last = max(last_key_tile<Config>(p, walk.query0 + row0), walk.first_tile);
      const auto pass_values = [&] { return tile < walk.last_tile; };
      for (; tile > last; --tile) {
        k.wait_full();
        if (pass_values()) v.wait_full();
        turns.take();
        turns.pass();
        ptx::barrier_sync(kPassing + consumer, 128);
        release(k, Ring::k);
        if (pass_values()) release(v, Ring::v);
      }
      k.wait_full();
      rows.start_scores(sQ, sK());
      rows.template wait_scores<0>();
      release(k, Ring::k);
      if (tile == walk.first_tile) release(q, Ring::q);
      softmax(tile);
      if (pass_values()) {
        v.wait_full();
        ptx::barrier_sync(kPassing + consumer, 128);
        release(v, Ring::v);
      }
      rows.pack();
      // K is one tile ahead of V. With its stage a constant, so are the descriptors' offsets.
      static_assert(Config::kStages == 2);
      const auto step = [&](int stage) {
        k.is_at(stage);
        v.is_at(1 - stage);
        k.wait_full();
        turns.take();
        if constexpr (!Config::kOverlapsProducts) {
          v.wait_full();
          rows.start_output(sV());
          rows.wait_output();
        }
        rows.start_scores(sQ, sK());
        if constexpr (Config::kOverlapsProducts) {
          v.wait_full();
          rows.start_output(sV());
        }
        turns.pass();
        if constexpr (!Config::kOverlapsProducts) release(v, Ring::v);
        rows.template wait_scores<Config::kOverlapsProducts ? 1 : 0>();
        release(k, Ring::k);
        if (tile - 1 == walk.first_tile) release(q, Ring::q);
        softmax(tile - 1);
        if constexpr (Config::kOverlapsProducts) {
          rows.wait_output();
          release(v, Ring::v);
        }
        rows.pack();
        rows.rescale_output();
      };
      for (; tile > walk.first_tile; --tile) {
        if (k.stage() == 0) {
          step(0);
        } else {
          step(1);
        }
      }
      v.wait_full();
      rows.start_output(sV());
      rows.wait_output();
      release(v, Ring::v);
    }
    int place = consumer;
    if constexpr (!Config::kHasOutputPlace) {  // the stages of V, once both consumers have read them
      Pipeline<Config::kStages> of_place(v);
      if (consumer == 1) of_place.advance();
      of_place.wait_empty();
      place = of_place.stage();
    }
    wait_stored(s, place, n);
    write_output(rows, s, p, schedule, walk.query0 + row0, walk.head, consumer, place);
    after_output(walk, n);
  }
}

struct Nothing {
  template <class... Args>
  __device__ void operator()(const Args&...) const {}
};

/// What each warpgroup of the block does: the first copies and stores, the others compute.
template <class Config>
__device__ void run_warpgroup(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                              const Schedule& schedule, int warpgroup) {
  if (warpgroup == 0) {
    ptx::give_up_registers<Config::kProducerRegisters>();
    if (threadIdx.x == 0) copy_tiles(s, maps, p, schedule.order);
    if (threadIdx.x == 32) store_tiles(s, maps, p, schedule.order);
  } else {
    ptx::take_registers<Config::kConsumerRegisters>();
    compute_tiles(s, p, schedule, warpgroup - 1, Nothing{}, Nothing{});
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    forward_kernel(ForwardParams p, Schedule schedule, const __grid_constant__ TensorMaps maps) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);
  if (threadIdx.x == 0) {
    s.q.init(Config::kConsumers);
    s.k.init(Config::kConsumers);
    s.v.init(Config::kConsumers);
    // The consumer, and the producer where O goes to V's stages.
    const int writers = kWrittenArrivals<Config> + (Config::kHasOutputPlace ? 0 : 1);
    for (uint64_t& written : s.written) ptx::mbarrier_init(ptx::shared_address(&written), writers);
    for (uint64_t& stored : s.stored) ptx::mbarrier_init(ptx::shared_address(&stored), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // By shuffle, so that the compiler sees one value for the warp.
  const int warpgroup = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128, 0);
  run_warpgroup(s, maps, p, schedule, warpgroup);
}

}  // namespace fa::internal::v8
