/// V2: FlashAttention-2 (Dao 2023, algorithm 1), simplified. A block owns one query tile and loops over the
/// key tiles that its rows see. Q is loaded once; O is normalised and written once, at the end.
///
/// The warps split the query rows, so that a row's scores belong to one warp: its maximum and sum need no
/// other warp, and P never crosses from warp to warp. m, l, O and the scores still live in shared memory.
#pragma once

#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/online_softmax.cuh"
#include "kernels/device/attention/query_tile.cuh"
#include "kernels/device/tile/copy.cuh"
#include "kernels/device/tile/reduce.cuh"
#include "kernels/v2_flash2/config.cuh"

namespace fa::internal::v2 {

template <class Config, int kRows>
__device__ void copy_tile(float (&sTile)[kRows][Config::kHeadDim], const typename Config::Element* gRows,
                          int64_t stride, int first, int rows, int head_dim) {
  copy_rows<kRows, Config::kHeadDim, Config::kThreads, Config::kCopyUnroll>(sTile, gRows, stride, first, rows,
                                                                            head_dim);
}

/// S = scale Q K^T for the warp's rows: a lane computes one key's column. kMasked: hidden keys get -infinity.
template <class Config, bool kMasked>
__device__ void tile_scores(SharedTiles<Config>& s, const ForwardParams& p, int row0, int query0, int key0) {
  const int lane = threadIdx.x % 32;
  float S[Config::kRowsPerWarp] = {};
#pragma unroll 4
  for (int d = 0; d < Config::kHeadDim; d += 4) {
    const float4 k = *reinterpret_cast<const float4*>(&s.K[lane][d]);
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
      const float4 q = *reinterpret_cast<const float4*>(&s.Q[row0 + i][d]);
      S[i] += q.x * k.x;
      S[i] += q.y * k.y;
      S[i] += q.z * k.z;
      S[i] += q.w * k.w;
    }
  }
  const Window window = window_of(p);
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) {
    const bool visible = !kMasked || window.sees(query0 + row0 + i, key0 + lane);
    s.P[row0 + i][lane] = visible ? S[i] * p.scale : no_score();
  }
}

/// The online softmax of the warp's rows: P = e^(S - m), and m, l and the rescale of what was summed before.
template <class Config>
__device__ void tile_softmax(SharedTiles<Config>& s, int row0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Config::kRowsPerWarp; ++i) {
    const int row = row0 + i;
    const float score = s.P[row][lane];
    const float m_old = s.m[row];
    const float m_new = fmaxf(m_old, group_max(score));
    const float probability = expf(score - finite_max(m_new));
    const float sum = group_sum(probability);
    s.P[row][lane] = probability;
    __syncwarp();  // every lane has read m
    if (lane == 0) {
      const float rescale = expf(m_old - finite_max(m_new));
      s.m[row] = m_new;
      s.l[row] = rescale * s.l[row] + sum;
      s.rescale[row] = rescale;
    }
  }
  __syncwarp();  // the rows' P and rescale
}

/// O = rescale O + P V for the warp's rows: a lane takes the columns congruent to it.
template <class Config>
__device__ void tile_output(SharedTiles<Config>& s, int row0) {
  const int lane = threadIdx.x % 32;
  // A few columns at a time keep the sums in registers.
  constexpr int kColumns = Config::kColumnsPerLane < 2 ? 1 : 2;
#pragma unroll 1
  for (int d0 = lane; d0 < Config::kHeadDim; d0 += 32 * kColumns) {
    float PV[Config::kRowsPerWarp][kColumns] = {};
#pragma unroll 2
    for (int key = 0; key < Config::kBlockN; key += 4) {
      float v[4][kColumns];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) v[k][c] = s.V[key + k][d0 + 32 * c];
      }
#pragma unroll
      for (int i = 0; i < Config::kRowsPerWarp; ++i) {
        const float4 P = *reinterpret_cast<const float4*>(&s.P[row0 + i][key]);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          PV[i][c] += P.x * v[0][c];
          PV[i][c] += P.y * v[1][c];
          PV[i][c] += P.z * v[2][c];
          PV[i][c] += P.w * v[3][c];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Config::kRowsPerWarp; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float& o = s.O[row0 + i][d0 + 32 * c];
        o = s.rescale[row0 + i] * o + PV[i][c];
      }
    }
  }
}

template <class Config>
__device__ void clear_state(SharedTiles<Config>& s) {
  for (int i = threadIdx.x; i < Config::kBlockM * Config::kHeadDim; i += Config::kThreads) {
    s.O[i / Config::kHeadDim][i % Config::kHeadDim] = 0.0f;
  }
  for (int row = threadIdx.x; row < Config::kBlockM; row += Config::kThreads) {
    s.m[row] = no_score();
    s.l[row] = 0.0f;
  }
}

/// O / l and m + ln(l), once. Each warp writes its own rows.
template <class Config>
__device__ void write_output(SharedTiles<Config>& s, const ForwardParams& p, Dtype dtype_out, int b, int h,
                             int row0, int query0) {
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < Config::kRowsPerWarp; ++i) {
    const int row = row0 + i;
    const int query = query0 + row;
    if (query >= p.M) return;
    const float normalise = inverse_sum(s.l[row]);
    const int64_t offset = b * p.out_stride.batch + h * p.out_stride.head + query * p.out_stride.seq;
    for (int d = lane; d < p.Dv; d += 32) store_as(dtype_out, p.out, offset + d, s.O[row][d] * normalise);
    if (p.lse != nullptr && lane == 0) {
      p.lse[(static_cast<int64_t>(b) * p.H + h) * p.M + query] = log_sum_exp(s.m[row], s.l[row]);
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads) forward_kernel(ForwardParams p, Dtype dtype_out) {
  using T = typename Config::Element;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);

  const auto [query0, b, h] = longest_first<Config::kBlockM>(p);
  const T* gQ = static_cast<const T*>(p.q) + b * p.q_stride.batch + h * p.q_stride.head;            // [M, D]
  const T* gK = static_cast<const T*>(p.k) + b * p.k_stride.batch + h / p.group * p.k_stride.head;  // [N, D]
  const T* gV = static_cast<const T*>(p.v) + b * p.v_stride.batch + h / p.group * p.v_stride.head;  // [N, Dv]
  const int row0 = static_cast<int>(threadIdx.x) / 32 * Config::kRowsPerWarp;

  copy_tile<Config>(s.Q, gQ, p.q_stride.seq, query0, p.M, p.D);
  clear_state(s);

  const BlockRange<Config::kBlockN> range(window_of(p), query0, min(query0 + Config::kBlockM, p.M) - 1);
  for (int tile = range.begin; tile < range.end; ++tile) {
    const int key0 = tile * Config::kBlockN;
    __syncthreads();  // the tile before has been read
    copy_tile<Config>(s.K, gK, p.k_stride.seq, key0, p.N, p.D);
    copy_tile<Config>(s.V, gV, p.v_stride.seq, key0, p.N, p.Dv);
    __syncthreads();
    if (range.is_full(tile)) {
      tile_scores<Config, false>(s, p, row0, query0, key0);
    } else {
      tile_scores<Config, true>(s, p, row0, query0, key0);
    }
    tile_softmax(s, row0);
    tile_output(s, row0);
  }
  __syncthreads();  // where no tile was visited: other warps cleared the state
  write_output(s, p, dtype_out, b, h, row0, query0);
}

}  // namespace fa::internal::v2
