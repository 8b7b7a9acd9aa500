/// V7: the Ampere generation's tensor cores, by the instructions themselves. mma.sync m16n8k16 names which
/// lane holds which element, so that scores, probabilities and O never leave registers: the accumulator of Q
/// K^T is, up to packing, the left operand of P V. K and V stream through swizzled tiles by cp.async.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/mma_rows.cuh"
#include "kernels/device/attention/query_tile.cuh"
#include "kernels/device/ptx/cp_async.cuh"
#include "kernels/device/ptx/ldmatrix.cuh"
#include "kernels/device/ptx/mma.cuh"
#include "kernels/device/ptx/shared_address.cuh"
#include "kernels/device/tile/convert.cuh"
#include "kernels/device/tile/swizzle.cuh"
#include "kernels/v7_ampere/config.cuh"

namespace fa::internal::v7 {

/// Addresses for ldmatrix in a tile of Q, K or V.
template <class Config>
using TileRows = LaneRows<Config::kHeadDim, typename Config::Layout>;

/// The warp's rows of Q as left operands: the first kQInRegisters feature blocks stay in registers, the
/// others are read from shared memory where they are needed.
template <class Config>
struct Queries {
  TileRows<Config> sQ;
  uint32_t kept[Config::kQInRegisters + 1][Config::kRowBlocks][4];  // and room for the one that is read

  __device__ void load(int k, int to) {
#pragma unroll
    for (int i = 0; i < Config::kRowBlocks; ++i) ptx::ldmatrix_x4(kept[to][i], sQ(i, k));
  }
  __device__ void load_kept() {
#pragma unroll
    for (int k = 0; k < Config::kQInRegisters; ++k) load(k, k);
  }
  __device__ const uint32_t (&block(int k))[Config::kRowBlocks][4] {
    if (k < Config::kQInRegisters) return kept[k];
    load(k, Config::kQInRegisters);
    return kept[Config::kQInRegisters];
  }
};

/// S = Q K^T for the warp's rows.
template <class Config>
__device__ void tile_scores(MmaRows<Config>& rows, Queries<Config>& queries, const TileRows<Config>& sK) {
  using T = typename Config::Element;
  rows.clear_scores();
#pragma unroll
  for (int k = 0; k < Config::kFeatureBlocks; ++k) {
    const auto& Q = queries.block(k);
#pragma unroll
    for (int j = 0; j < Config::kKeyBlocks; ++j) {
      uint32_t key[4];
      ptx::ldmatrix_x4(key, sK(j, k));
#pragma unroll
      for (int i = 0; i < Config::kRowBlocks; ++i) {
        ptx::mma_m16n8k16<T>(rows.S[i][2 * j], Q[i], key[0], key[1]);
        ptx::mma_m16n8k16<T>(rows.S[i][2 * j + 1], Q[i], key[2], key[3]);
      }
    }
  }
}

/// Hides what the mask hides of a tile that lies across its edge: range is the warp's own. query0: its first
/// row.
template <class Config>
__device__ void mask_tile(MmaRows<Config>& rows, const Window& window,
                          const BlockRange<Config::kBlockN>& range, int query0, int tile) {
  if (!range.is_full(tile)) rows.mask_scores(window, query0, tile * Config::kBlockN);
}

/// P = 2^(factor S - R), unless it is there already, and O += P V for the warp's rows, 16 keys at a time: the
/// exponentials of the next keys run beside the products of these.
template <bool kExponentiated, class Config>
__device__ void tile_output(MmaRows<Config>& rows, const TileRows<Config>& sV) {
  using T = typename Config::Element;
#pragma unroll
  for (int j = 0; j < Config::kKeyBlocks; ++j) {
    uint32_t P[Config::kRowBlocks][4];
#pragma unroll
    for (int i = 0; i < Config::kRowBlocks; ++i) {
      if constexpr (!kExponentiated) rows.exponentiate(i, j);
      rows.pack_probabilities(P[i], i, j);
    }
#pragma unroll
    for (int k = 0; k < Config::kFeatureBlocks; ++k) {
      uint32_t value[4];
      ptx::ldmatrix_x4_transposed(value, sV(j, k));
#pragma unroll
      for (int i = 0; i < Config::kRowBlocks; ++i) {
        ptx::mma_m16n8k16<T>(rows.O[i][2 * k], P[i], value[0], value[1]);
        ptx::mma_m16n8k16<T>(rows.O[i][2 * k + 1], P[i], value[2], value[3]);
      }
    }
  }
}

/// Q times the scale's sign, in place, by the warp whose rows they are: then the rest may take scale > 0.
template <class Config>
__device__ void apply_sign(SharedTiles<Config>& s, int row0, float sign) {
  using T = typename Config::Element;
  T* const sQ = &s.Q[row0][0];  // whole rows: the swizzle moves nothing out of them
  for (int i = threadIdx.x % 32; i < Config::kRowsPerWarp * Config::kHeadDim; i += 32) {
    sQ[i] = from_float<T>(to_float(sQ[i]) * sign);
  }
  __syncwarp();
}

/// Starts copying kRows rows into a tile; rows from `rows` on become zeros, and features from D on are zeros,
/// of whole chunks after clear_features().
template <class Config, int kRows>
__device__ void load_rows(typename Config::Element (&tile)[kRows][Config::kHeadDim],
                          const typename Config::Element* gRows, int64_t stride, int rows, int D,
                          const Divisor& chunks, int copy_bytes) {
  using Layout = typename Config::Layout;
  constexpr int kHeadDim = Config::kHeadDim, kThreads = Config::kThreads;
  const uint32_t to = ptx::shared_address(tile);
  if constexpr (!Config::kInPieces) {
    load_tile_async<kRows, kHeadDim, kThreads, Layout>(to, gRows, stride, rows, D, chunks);
  } else if (copy_bytes == 8) {
    load_tile_in_pieces_async<8, kRows, kHeadDim, kThreads, Layout>(to, gRows, stride, rows, D);
  } else {
    load_tile_in_pieces_async<4, kRows, kHeadDim, kThreads, Layout>(to, gRows, stride, rows, D);
  }
}

/// Starts making zeros of what load_rows() leaves alone, in all tiles.
template <class Config>
__device__ void clear_features(SharedTiles<Config>& s, const ForwardParams& p, const Schedule& schedule) {
  if constexpr (!Config::kInPieces && kLoadsWholeRows<Config::kThreads, typename Config::Layout>) {
    const auto clear = [&]<int kRows>(typename Config::Element(&tile)[kRows][Config::kHeadDim], int first) {
      clear_chunks_async<kRows, Config::kHeadDim, Config::kThreads, typename Config::Layout>(
          ptx::shared_address(tile), first, p.q);
    };
    if (p.D < Config::kHeadDim) {
      clear(s.Q, schedule.chunks.value);
      for (auto& K : s.K) clear(K, schedule.chunks.value);
    }
    if (p.Dv < Config::kHeadDim) {
      for (auto& V : s.V) clear(V, schedule.chunks_v.value);
    }
  }
}

/// Waits for all copies of every thread but the newest kPending groups. What was read before may be
/// overwritten.
template <int kPending>
__device__ void wait_for_copies() {
  ptx::cp_async_wait<kPending>();
  __syncthreads();
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    forward_kernel(ForwardParams p, Schedule schedule, Dtype dtype_out) {
  using T = typename Config::Element;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);

  const auto [query0, b, h, key_head] =
      longest_first_in_groups<Config::kBlockM>(schedule.order, static_cast<int>(blockIdx.x));
  const T* gQ = static_cast<const T*>(p.q) + b * p.q_stride.batch + h * p.q_stride.head;         // [M, D]
  const T* gK = static_cast<const T*>(p.k) + b * p.k_stride.batch + key_head * p.k_stride.head;  // [N, D]
  const T* gV = static_cast<const T*>(p.v) + b * p.v_stride.batch + key_head * p.v_stride.head;  // [N, Dv]
  const int lane = threadIdx.x % 32;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * Config::kRowsPerWarp;

  const BlockRange<Config::kBlockN> range(window_of(p), query0, min(query0 + Config::kBlockM, p.M) - 1);
  const int warp_query0 = min(query0 + row0, p.M - 1);
  const BlockRange<Config::kBlockN> warp_range(window_of(p), warp_query0,
                                               min(warp_query0 + Config::kRowsPerWarp, p.M) - 1);
  const auto copy_keys = [&](int tile, int stage) {
    const int key0 = tile * Config::kBlockN;
    load_rows<Config>(s.K[stage], gK + key0 * p.k_stride.seq, p.k_stride.seq, p.N - key0, p.D,
                      schedule.chunks, schedule.copy_bytes);
  };
  const auto copy_values = [&](int tile, int stage) {
    const int key0 = tile * Config::kBlockN;
    load_rows<Config>(s.V[stage], gV + key0 * p.v_stride.seq, p.v_stride.seq, p.N - key0, p.Dv,
                      schedule.chunks_v, schedule.copy_bytes);
  };

  clear_features(s, p, schedule);
  load_rows<Config>(s.Q, gQ + query0 * p.q_stride.seq, p.q_stride.seq, p.M - query0, p.D, schedule.chunks,
                    schedule.copy_bytes);
  if (range.begin < range.end) copy_keys(range.begin, range.begin % Config::kStages);
  ptx::cp_async_commit();
  if (range.begin < range.end) copy_values(range.begin, range.begin % Config::kStages);
  ptx::cp_async_commit();

  MmaRows<Config> rows;
  // Lane l reads row l % 16 of Q and V, and of K row l % 8 + 8 (l / 16), for the matrices of one ldmatrix.
  Queries<Config> queries{TileRows<Config>(ptx::shared_address(s.Q[row0]), lane % 16, lane / 16)};
  if (schedule.scale.sign <= 0) {  // ahead of the loop: in it the branch cost 4% at D256, even never taken
    wait_for_copies<1>();
    apply_sign(s, row0, schedule.scale.sign);
  }
  for (int tile = range.begin; tile < range.end; ++tile) {
    const bool is_first = tile == range.begin, is_last = tile + 1 == range.end;
    const int stage = tile % Config::kStages;
    const bool visited = query0 + row0 < p.M && warp_range.visits(tile);
    if (is_first) {
      wait_for_copies<1>();  // Q and K
      queries.load_kept();
    } else {
      wait_for_copies<0>();
      if constexpr (Config::kStages == 1) {  // V is copied beside Q K^T
        copy_values(tile, 0);
        ptx::cp_async_commit();
      }
    }
    if constexpr (Config::kStages == 2) {  // the next tile is copied beside this one's products
      if (!is_last) {
        copy_keys(tile + 1, stage ^ 1);
        copy_values(tile + 1, stage ^ 1);
      }
      ptx::cp_async_commit();
    }

    if (visited) {
      const TileRows<Config> sK(ptx::shared_address(s.K[stage]), lane % 8 + lane / 16 * 8, lane / 8 % 2);
      tile_scores(rows, queries, sK);
      mask_tile(rows, window_of(p), warp_range, query0 + row0, tile);
      rows.update_reference(schedule.scale.log2);
      if constexpr (Config::kStages == 1) rows.exponentiate();
    }
    if constexpr (Config::kStages == 1) {  // and the next K beside P V
      wait_for_copies<0>();
      if (!is_last) copy_keys(tile + 1, 0);
      ptx::cp_async_commit();
    } else if (is_first) {
      wait_for_copies<1>();  // V
    }
    if (visited) {
      const TileRows<Config> sV(ptx::shared_address(s.V[stage]), lane % 16, lane / 16);
      tile_output<Config::kStages == 1>(rows, sV);
    }
  }
  if (range.begin >= range.end) wait_for_copies<0>();  // Q's may still be on their way to where O goes
  rows.finish(schedule.scale.log2);
  rows.write_lse(p, b, h, query0 + row0);
  rows.write_output(p, dtype_out, b, h, query0 + row0, &s.Q[row0][0], !Config::kInPieces || p.Dv % 8 == 0);
}

}  // namespace fa::internal::v7
