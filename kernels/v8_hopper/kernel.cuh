/// V8: Hopper's tensor cores and copy engine. One thread copies by TMA; the warpgroups beside it compute 64
/// query rows each by wgmma, whose products run while the warpgroup goes on: S of the next key tile and P V
/// of this one are under way together, the softmax runs below P V, and the warpgroups take turns at the
/// tensor cores, so that one's softmax runs below another's products too.
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
enum Barrier : int { kTurn = 1, kStored = 4 };

/// A block's query tiles, one after the other.
template <class Config>
struct Walk {
  const ForwardParams& p;
  const RoundOrder& order;
  int round = -1;
  int query0 = 0;
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
      const int i = round_of_group * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
      const Divisor heads = group + 1 == order.groups ? order.last_group_heads : order.group_heads;
      const int tile = divide(i, heads);
      if (tile >= order.query_tiles) continue;
      head = group * order.group_heads.value + i - tile * heads.value;
      query0 = (order.query_tiles - 1 - tile) * Config::kBlockM;
      const BlockRange<Config::kBlockN> range(window_of(p), query0, min(query0 + Config::kBlockM, p.M) - 1);
      first_tile = range.begin;
      last_tile = range.end - 1;
      return true;
    }
  }
  __device__ bool has_keys() const { return first_tile <= last_tile; }
  __device__ bool next_with_keys() {
    while (next()) {
      if (has_keys()) return true;
    }
    return false;
  }
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

/// The producer, one thread. Key tiles go from the last to the first: those that the mask's edge crosses come
/// first, when no product runs yet that they could delay.
template <class Config>
__device__ void copy_tiles(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                           const RoundOrder& order) {
  Pipeline<1> q(s.q);
  Pipeline<Config::kStages> k(s.k), v(s.v);
  Walk<Config> walk(p, order);
  while (walk.next_with_keys()) {
    const int b = walk.b(), h = walk.h();
    const int key_head = divide(h, order.heads_per_key_head);
    const auto copy_keys = [&](int tile) {
      const uint32_t full = k.fill(Config::kBoxes * Config::kBytesN);
      copy_rows<Config::kBoxes>(s.K[k.stage()], maps.k, Config::kBytesN, tile * Config::kBlockN, key_head, b,
                                full);
      k.advance();
    };
    const auto copy_values = [&](int tile) {
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
  }
}

/// O of the warpgroup's rows, normalised, to global memory.
template <class Config>
__device__ void store_output(const WgmmaRows<Config>& rows, SharedTiles<Config>& s, const TensorMaps& maps,
                             const ForwardParams& p, const Schedule& schedule, int query0, int head,
                             int consumer) {
  using T = typename Config::Element;
  int thread = static_cast<int>(threadIdx.x) % 128;
  ptx::pin(thread);  // else the addresses below are computed ahead of the tiles' loop, and spilled
  const int lane = thread % 32;
  const int warp_row0 = thread / 32 * 16;  // of the warpgroup's 64
  const int row0 = 64 * consumer;          // of the tile
  const Divisor& H = schedule.order.H;
  const int b = divide(head, H), h = head - b * H.value;
  float normalise[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float l = group_sum<4>(rows.l[0][half]);
    normalise[half] = rows.normalisation(0, half, l, schedule.scale.log2);
    const int query = query0 + row0 + warp_row0 + lane / 4 + 8 * half;
    if (p.lse != nullptr && lane % 4 == 0 && query < p.M) {
      p.lse[static_cast<int64_t>(head) * p.M + query] = log_sum_exp2(rows.R[0][half], l);
    }
  }
  const auto pair = [&](int c, int half) {
    return pack<T>(rows.O[0][c][2 * half] * normalise[half], rows.O[0][c][2 * half + 1] * normalise[half]);
  };
  T* const gOut = static_cast<T*>(p.out) + b * p.out_stride.batch + h * p.out_stride.head;
  if constexpr (Config::kStagesOutput) {
    if (thread == 0) ptx::tma_store_wait_read();  // of the last tile's O
    ptx::barrier_sync(kStored + consumer, 128);
#pragma unroll
    for (int c = 0; c < WgmmaRows<Config>::kColumns; ++c) {
      const uint32_t box = ptx::shared_address(&s.O[c / 8][row0 + warp_row0][0]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::store_shared(box + box_offset(lane / 4 + 8 * half, c % 8) + lane % 4 * 4, pair(c, half));
      }
    }
    ptx::fence_async_proxy();
    ptx::barrier_sync(kStored + consumer, 128);
    if (thread == 0 && query0 + row0 < p.M && p.Dv >= 8) {
#pragma unroll
      for (int box = 0; box < Config::kBoxesV; ++box) {
        ptx::tma_store(maps.out, {box * kBoxColumns, query0 + row0, h, b},
                       ptx::shared_address(&s.O[box][row0][0]));
      }
      ptx::tma_store_commit();
    }
    // The map of out ends with the last whole 16 bytes of a row: what follows is a thread's.
    const int query = query0 + row0 + thread, whole = p.Dv / 8 * 8;
    if (whole != p.Dv && thread < 64 && query < p.M) {
      const char* const box = reinterpret_cast<const char*>(&s.O[whole / kBoxColumns][row0][0]);
      const T* const rest = reinterpret_cast<const T*>(box + box_offset(thread, whole % kBoxColumns / 8));
      for (int e = 0; whole + e < p.Dv; ++e) gOut[query * p.out_stride.seq + whole + e] = rest[e];
    }
  } else {
    // Two neighbouring column blocks of a row are 32 bytes in four lanes: even lanes take the first, so that
    // a lane has 8 bytes.
    const bool odd = lane % 2 != 0;
#pragma unroll
    for (int c = 0; c < WgmmaRows<Config>::kColumns; c += 2) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t first = pair(c, half), second = pair(c + 1, half);
        const uint32_t got = __shfl_xor_sync(kFullWarp, odd ? first : second, 1);
        const int query = query0 + row0 + warp_row0 + lane / 4 + 8 * half;
        const int column = 8 * (c + (odd ? 1 : 0)) + lane % 4 / 2 * 4;
        const uint2 four = odd ? make_uint2(got, second) : make_uint2(first, got);
        T* const to = gOut + query * p.out_stride.seq + column;
        if (query >= p.M) continue;
        if (column + 4 <= p.Dv) {
          *reinterpret_cast<uint2*>(to) = four;
        } else {  // a row may end anywhere, and what lies behind it is not ours
          const T* const elements = reinterpret_cast<const T*>(&four);
#pragma unroll
          for (int e = 0; e < 3; ++e) {
            if (column + e < p.Dv) to[e] = elements[e];
          }
        }
      }
    }
  }
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

/// A consumer: the 64 rows from row 64 * consumer of each query tile. after_release(ring) follows the release
/// of each stage, by all threads.
template <class Config, class AfterRelease>
__device__ void compute_tiles(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                              const Schedule& schedule, int consumer, AfterRelease after_release) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int row0 = 64 * consumer;
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
  while (walk.next()) {
    WgmmaRows<Config> rows;
    if (walk.has_keys()) {
      int warp = thread / 32;
      ptx::pin(warp);  // else it is computed ahead of all tiles, and spilled
      const int query0 = walk.query0 + row0 + 16 * warp;
      const int first_row = min(query0, p.M - 1), last_row = max(first_row, min(query0 + 16, p.M) - 1);
      const BlockRange<Config::kBlockN> range(window_of(p), first_row, last_row);
      const auto softmax = [&](int tile) {
        if (!range.is_full(tile)) rows.mask_scores(window_of(p), query0, tile * Config::kBlockN);
        rows.softmax(schedule.scale.log2);
      };

      int tile = walk.last_tile;
      q.wait_full();
      k.wait_full();
      rows.start_scores(sQ, sK());
      rows.template wait_scores<0>();
      release(k, Ring::k);
      if (tile == walk.first_tile) release(q, Ring::q);
      softmax(tile);
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
          release(v, Ring::v);
        }
        rows.start_scores(sQ, sK());
        if constexpr (Config::kOverlapsProducts) {
          v.wait_full();
          rows.start_output(sV());
        }
        turns.pass();
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
    store_output(rows, s, maps, p, schedule, walk.query0, walk.head, consumer);
  }
  if (thread == 0) ptx::tma_store_wait_read();  // shared memory ends with the block
}

/// What each warpgroup of the block does: the first copies, the others compute.
template <class Config>
__device__ void run_warpgroup(SharedTiles<Config>& s, const TensorMaps& maps, const ForwardParams& p,
                              const Schedule& schedule, int warpgroup) {
  if (warpgroup == 0) {
    ptx::give_up_registers<Config::kProducerRegisters>();
    if (threadIdx.x == 0) copy_tiles(s, maps, p, schedule.order);
  } else {
    ptx::take_registers<Config::kConsumerRegisters>();
    compute_tiles(s, maps, p, schedule, warpgroup - 1, [](Ring) {});
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
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // By shuffle, so that the compiler sees one value for the warp.
  const int warpgroup = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 128, 0);
  run_warpgroup(s, maps, p, schedule, warpgroup);
}

}  // namespace fa::internal::v8
