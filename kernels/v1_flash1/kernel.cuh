/// V1: FlashAttention-1 (Dao et al. 2022, algorithm 1). The outer loop runs over key tiles, the inner one
/// over query tiles, so that K and V are read once; m, l and O live in global memory and are read and written
/// again for every pair of tiles. One block per (batch, head).
///
/// FlashAttention-1's own habits are kept: the four warps split a tile's keys, so a row's maximum and sum are
/// partial until the warps have met in shared memory; and O is normalised after every key tile.
#pragma once

#include "kernels/device/attention/mask.cuh"
#include "kernels/device/attention/online_softmax.cuh"
#include "kernels/device/tile/reduce.cuh"
#include "kernels/v1_flash1/config.cuh"

namespace fa::internal::v1 {

/// Tiles whose row length is known at run time, in dynamic shared memory, and the rows' state.
template <class Config>
struct SharedTiles {
  float* Q;                           // [kBlockM, D]
  float* K;                           // [kBlockN, D]
  float* V;                           // [kBlockN, Dv]
  float* O;                           // [kBlockM, Dv], normalised
  float (*P)[Config::kBlockN];        // [kBlockM, kBlockN]: scores, then probabilities
  float (*partial)[Config::kBlockM];  // [kWarps, kBlockM]: a row's maximum, then sum, over each warp's keys
  float *m, *l;                       // [kBlockM]
  float *keep, *add;                  // [kBlockM]: weights of the old O and of this tile's P V

  static constexpr int floats(int D, int Dv) {
    return Config::kBlockM * (D + Dv + Config::kBlockN + Config::kWarps + 4) + Config::kBlockN * (D + Dv);
  }

  __device__ SharedTiles(float* base, int D, int Dv) {
    const auto take = [&base](int count) {
      float* part = base;
      base += count;
      return part;
    };
    Q = take(Config::kBlockM * D);
    K = take(Config::kBlockN * D);
    V = take(Config::kBlockN * Dv);
    O = take(Config::kBlockM * Dv);
    P = reinterpret_cast<float(*)[Config::kBlockN]>(take(Config::kBlockM * Config::kBlockN));
    partial = reinterpret_cast<float(*)[Config::kBlockM]>(take(Config::kWarps * Config::kBlockM));
    m = take(Config::kBlockM);
    l = take(Config::kBlockM);
    keep = take(Config::kBlockM);
    add = take(Config::kBlockM);
  }
};

/// sTile[r][d] = gRows[first + r][d] for r < kRows; zero beyond `rows`.
template <class Config, int kRows>
__device__ void copy_tile(float* sTile, const float* gRows, int64_t stride, int first, int rows,
                          int columns) {
  for (int i = threadIdx.x; i < kRows * columns; i += Config::kThreads) {
    const int r = i / columns;
    sTile[i] = first + r < rows ? gRows[(first + r) * stride + i % columns] : 0.0f;
  }
}

/// A lane's place in the tile of scores: one key of its warp's share, and every fourth row.
template <class Config>
struct ScorePlace {
  static constexpr int kLaneRows = 32 / Config::kKeysPerWarp;
  int warp = threadIdx.x / 32;
  int key = warp * Config::kKeysPerWarp + threadIdx.x % Config::kKeysPerWarp;
  int first_row = threadIdx.x % 32 / Config::kKeysPerWarp;
  bool speaks_for_warp = threadIdx.x % Config::kKeysPerWarp == 0;

  __device__ int row(int i) const { return first_row + kLaneRows * i; }
};

/// P = exp(S - m~) for the tile, with m~ the tile's own row maximum; the tile's row sums go to s.partial.
/// Returns with the row maxima in s.add and the sums still apart by warp.
template <class Config>
__device__ void tile_probabilities(const SharedTiles<Config>& s, const ForwardParams& p, int query0,
                                   int key0) {
  const ScorePlace<Config> place;
  const Window window = window_of(p);

  float S[Config::kRowsPerLane] = {};
  for (int d = 0; d < p.D; ++d) {
    const float k = s.K[place.key * p.D + d];
#pragma unroll
    for (int i = 0; i < Config::kRowsPerLane; ++i) S[i] += s.Q[place.row(i) * p.D + d] * k;
  }
#pragma unroll
  for (int i = 0; i < Config::kRowsPerLane; ++i) {
    S[i] = window.sees(query0 + place.row(i), key0 + place.key) ? S[i] * p.scale : no_score();
    const float partial_max = group_max<Config::kKeysPerWarp>(S[i]);
    if (place.speaks_for_warp) s.partial[place.warp][place.row(i)] = partial_max;
  }
  __syncthreads();  // every warp's maxima

  float P[Config::kRowsPerLane];
#pragma unroll
  for (int i = 0; i < Config::kRowsPerLane; ++i) {
    float tile_max = no_score();
#pragma unroll
    for (int w = 0; w < Config::kWarps; ++w) tile_max = fmaxf(tile_max, s.partial[w][place.row(i)]);
    P[i] = expf(S[i] - finite_max(tile_max));
    s.P[place.row(i)][place.key] = P[i];
    if (place.warp == 0 && place.speaks_for_warp) s.add[place.row(i)] = tile_max;
  }
  __syncthreads();  // the maxima have been read: their place takes the sums

#pragma unroll
  for (int i = 0; i < Config::kRowsPerLane; ++i) {
    const float partial_sum = group_sum<Config::kKeysPerWarp>(P[i]);
    if (place.speaks_for_warp) s.partial[place.warp][place.row(i)] = partial_sum;
  }
  __syncthreads();  // every warp's sums, and all of P
}

/// m, l and the two weights of  O = diag(l_new)^-1 (diag(l) e^(m - m_new) O + e^(m~ - m_new) P~ V).
/// On entry s.add holds m~.
template <class Config>
__device__ void update_state(const SharedTiles<Config>& s) {
  const int row = threadIdx.x;
  if (row >= Config::kBlockM) return;
  float tile_sum = 0.0f;
#pragma unroll
  for (int w = 0; w < Config::kWarps; ++w) tile_sum += s.partial[w][row];
  const float m_old = s.m[row], l_old = s.l[row], tile_max = s.add[row];
  const float m_new = fmaxf(m_old, tile_max);
  const float old_weight = l_old * expf(m_old - finite_max(m_new));
  const float tile_weight = expf(tile_max - finite_max(m_new));
  const float l_new = old_weight + tile_weight * tile_sum;
  s.m[row] = m_new;
  s.l[row] = l_new;
  s.keep[row] = l_new == 0.0f ? 0.0f : old_weight / l_new;
  s.add[row] = l_new == 0.0f ? 0.0f : tile_weight / l_new;
}

/// O = keep O + add P V. P holds the scores of all four warps: it crosses from warp to warp in shared memory.
/// Each warp takes eight rows, each lane the columns congruent to it.
template <class Config>
__device__ void update_output(const SharedTiles<Config>& s, int Dv) {
  constexpr int kRows = Config::kBlockM / Config::kWarps;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * kRows;
  for (int d = threadIdx.x % 32; d < Dv; d += 32) {
    float PV[kRows] = {};
#pragma unroll 4
    for (int key = 0; key < Config::kBlockN; ++key) {
      const float v = s.V[key * Dv + d];
#pragma unroll
      for (int i = 0; i < kRows; ++i) PV[i] += s.P[row0 + i][key] * v;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float& o = s.O[(row0 + i) * Dv + d];
      o = s.keep[row0 + i] * o + s.add[row0 + i] * PV[i];
    }
  }
}

/// The state of one head's rows in global memory.
struct RowState {
  float* m;  // [M]
  float* l;  // [M]
  float* O;  // [M, Dv], rows out_stride.seq apart
};

/// m, l, O of the query tile from global memory; before the first key tile there is nothing to read.
template <class Config>
__device__ void read_state(const SharedTiles<Config>& s, const RowState& g, const ForwardParams& p,
                           int query0, bool first) {
  const int row = threadIdx.x;
  if (row < Config::kBlockM) {
    const bool read = !first && query0 + row < p.M;
    s.m[row] = read ? g.m[query0 + row] : no_score();
    s.l[row] = read ? g.l[query0 + row] : 0.0f;
  }
  if (first) {
    for (int i = threadIdx.x; i < Config::kBlockM * p.Dv; i += Config::kThreads) s.O[i] = 0.0f;
  } else {
    copy_tile<Config, Config::kBlockM>(s.O, g.O, p.out_stride.seq, query0, p.M, p.Dv);
  }
}

template <class Config>
__device__ void write_state(const SharedTiles<Config>& s, const RowState& g, const ForwardParams& p,
                            int query0) {
  const int row = threadIdx.x;
  if (row < Config::kBlockM && query0 + row < p.M) {
    g.m[query0 + row] = s.m[row];
    g.l[query0 + row] = s.l[row];
  }
  for (int i = threadIdx.x; i < Config::kBlockM * p.Dv; i += Config::kThreads) {
    const int r = i / p.Dv;
    if (query0 + r < p.M) g.O[(query0 + r) * p.out_stride.seq + i % p.Dv] = s.O[i];
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads) forward_kernel(ForwardParams p) {
  extern __shared__ __align__(16) float shared_bytes[];
  const SharedTiles<Config> s(shared_bytes, p.D, p.Dv);
  const int b = static_cast<int>(blockIdx.x) / p.H;
  const int h = static_cast<int>(blockIdx.x) % p.H;
  const float* gQ = static_cast<const float*>(p.q) + b * p.q_stride.batch + h * p.q_stride.head;  // [M, D]
  const float* gK =
      static_cast<const float*>(p.k) + b * p.k_stride.batch + h / p.group * p.k_stride.head;  // [N, D]
  const float* gV =
      static_cast<const float*>(p.v) + b * p.v_stride.batch + h / p.group * p.v_stride.head;  // [N, Dv]
  const int64_t rows = static_cast<int64_t>(p.B) * p.H * p.M;
  float* gm = static_cast<float*>(p.workspace) + static_cast<int64_t>(blockIdx.x) * p.M;
  const RowState g{gm, gm + rows,
                   static_cast<float*>(p.out) + b * p.out_stride.batch + h * p.out_stride.head};

  for (int key0 = 0; key0 < p.N; key0 += Config::kBlockN) {
    copy_tile<Config, Config::kBlockN>(s.K, gK, p.k_stride.seq, key0, p.N, p.D);
    copy_tile<Config, Config::kBlockN>(s.V, gV, p.v_stride.seq, key0, p.N, p.Dv);
    for (int query0 = 0; query0 < p.M; query0 += Config::kBlockM) {
      copy_tile<Config, Config::kBlockM>(s.Q, gQ, p.q_stride.seq, query0, p.M, p.D);
      read_state(s, g, p, query0, key0 == 0);
      __syncthreads();
      tile_probabilities(s, p, query0, key0);
      update_state(s);
      __syncthreads();
      update_output(s, p.Dv);
      __syncthreads();
      write_state(s, g, p, query0);
      __syncthreads();  // the next pair of tiles writes what this one read
    }
  }

  for (int row = threadIdx.x; row < p.M; row += Config::kThreads) {
    if (p.lse != nullptr) {
      const float lse = p.N == 0 ? no_score() : log_sum_exp(g.m[row], g.l[row]);
      p.lse[static_cast<int64_t>(blockIdx.x) * p.M + row] = lse;
    }
    for (int d = 0; p.N == 0 && d < p.Dv; ++d) g.O[row * p.out_stride.seq + d] = 0.0f;
  }
}

}  // namespace fa::internal::v1
