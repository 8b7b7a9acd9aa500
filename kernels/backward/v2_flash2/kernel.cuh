/// V2 backward (FlashAttention-2, Dao 2023, algorithm 2), simplified. A block owns one key tile and loops
/// over the query tiles that see it: dK and dV stay in registers until the end, and nobody else adds to them.
///
/// P is recovered from the forward's L, one exponential a score. dQ gets a share from every key tile: added
/// atomically in fp32, or, where every run is to give the same bits, by query_gradients_kernel, whose blocks
/// own query tiles, loop over key tiles, and compute P and dS once more.
#pragma once

#include "kernels/backward/v2_flash2/config.cuh"
#include "kernels/device/attention/block_range.cuh"
#include "kernels/device/attention/query_range.cuh"
#include "kernels/device/tile/atomic.cuh"
#include "kernels/device/tile/fetched_tile.cuh"
#include "kernels/device/tile/register_product.cuh"

namespace fa::internal::v2_backward {

// How the threads share S and dP [kBlockM, kBlockN], and how dQ [kBlockM, kHeadDim], dK and dV
// [kBlockN, kHeadDim].
template <class Config>
using ScoreGrid = ThreadGrid<Config::kScoreY, Config::kThreads / Config::kScoreY>;
template <class Config>
using GradientGrid = ThreadGrid<Config::kGradientY, Config::kThreads / Config::kGradientY>;

template <class Config>
struct ScoreRegisters {
  using Grid = ScoreGrid<Config>;
  static constexpr int kRows = Config::kBlockM / Grid::kY;
  static constexpr int kColumns = Config::kBlockN / Grid::kX;
  float x[kRows][kColumns] = {};
};

/// kBlock: kBlockM for dQ, kBlockN for dK and dV.
template <class Config, int kBlock>
struct GradientRegisters {
  using Grid = GradientGrid<Config>;
  static constexpr int kRows = kBlock / Grid::kY;
  static constexpr int kColumns = Config::kHeadDim / Grid::kX;
  float x[kRows][kColumns] = {};
};

/// P = e^(scale S - L), and 0 where the mask hides the key. Rows beyond M have L = infinity, so that P = 0
/// without a test; for keys beyond N, whose S is 0, e^(0 - L) may overflow: they are always tested.
template <class Config, bool kMasked>
__device__ void tile_probabilities(SharedTiles<Config>& s, const BackwardParams& p, int query0, int key0) {
  const ScoreGrid<Config> at;
  ScoreRegisters<Config> S;
  add_product_abt<Config::kHeadDim>(at, S.x, s.Q, s.K);
  const Window window{p.window_lo, p.window_hi, p.N};
#pragma unroll
  for (int i = 0; i < S.kRows; ++i) {
    const int row = at.row(i);
    const float L = s.L[row];
#pragma unroll
    for (int j = 0; j < S.kColumns; ++j) {
      const int key = at.column(j);
      const bool visible = !kMasked || window.sees(query0 + row, key0 + key);
      // S <= L, but for the rounding of a large L, whose e^(S - L) could be infinite. NaN stays NaN.
      const float x = fmaf(S.x[i][j], p.scale, -L);
      s.P[row][key] = visible ? expf(x > 0.0f ? 0.0f : x) : 0.0f;
    }
  }
}

/// dP = dO V^T.
template <class Config>
__device__ void tile_dP(const SharedTiles<Config>& s, ScoreRegisters<Config>& dP) {
  add_product_abt<Config::kHeadDim>(ScoreGrid<Config>(), dP.x, s.dO, s.V);
}

/// dS = P o (dP - Delta), in the place of P: a thread reads and writes what it wrote as P.
template <class Config>
__device__ void tile_dS(SharedTiles<Config>& s, const ScoreRegisters<Config>& dP) {
  const ScoreGrid<Config> at;
#pragma unroll
  for (int i = 0; i < dP.kRows; ++i) {
    const int row = at.row(i);
    const float Delta = s.Delta[row];
#pragma unroll
    for (int j = 0; j < dP.kColumns; ++j) s.P[row][at.column(j)] *= dP.x[i][j] - Delta;
  }
}

/// The rows of Q and dO of one query tile, with their L and Delta, on their way to shared memory.
template <class Config>
class QueryTileLoads {
  using T = typename Config::Element;
  FetchedTile<Config::kBlockM, Config::kHeadDim, Config::kThreads, T> Q_, dO_;
  float L_, Delta_;  // of the row that has the thread's number

 public:
  __device__ void fetch(const BackwardParams& p, const Workspace& workspace, int b, int h, int query0,
                        bool aligned) {
    const T* gQ = static_cast<const T*>(p.q) + b * p.q_stride.batch + h * p.q_stride.head;  // [M, D]
    const T* gdO =
        static_cast<const T*>(p.dout) + b * p.dout_stride.batch + h * p.dout_stride.head;  // [M, Dv]
    Q_.fetch(gQ, p.q_stride.seq, query0, p.M, p.D, aligned);
    dO_.fetch(gdO, p.dout_stride.seq, query0, p.M, p.Dv, aligned);

    const int query = query0 + static_cast<int>(threadIdx.x);
    L_ = INFINITY;
    Delta_ = 0.0f;
    if (threadIdx.x < Config::kBlockM && query < p.M) {
      const int64_t i = (static_cast<int64_t>(b) * p.H + h) * p.M + query;
      // An empty row's L is -infinity: +infinity makes its P 0 like that of the rows beyond M.
      if (p.lse[i] != -INFINITY) L_ = p.lse[i];
      Delta_ = workspace.Delta[i];
    }
  }

  __device__ void store(SharedTiles<Config>& s) const {
    static_assert(Config::kBlockM <= Config::kThreads);
    Q_.store(s.Q);
    dO_.store(s.dO);
    if (threadIdx.x < Config::kBlockM) {
      s.L[threadIdx.x] = L_;
      s.Delta[threadIdx.x] = Delta_;
    }
  }
};

template <class Config>
__device__ void load_key_tile(SharedTiles<Config>& s, const BackwardParams& p, int b, int key_head, int key0,
                              bool aligned) {
  using T = typename Config::Element;
  const T* gK = static_cast<const T*>(p.k) + b * p.k_stride.batch + key_head * p.k_stride.head;  // [N, D]
  const T* gV = static_cast<const T*>(p.v) + b * p.v_stride.batch + key_head * p.v_stride.head;  // [N, Dv]
  load_rows<Config::kHeadDim, Config::kThreads>(s.K, gK, p.k_stride.seq, key0, p.N, p.D, aligned);
  load_rows<Config::kHeadDim, Config::kThreads>(s.V, gV, p.v_stride.seq, key0, p.N, p.Dv, aligned);
}

/// This tile's share of dQ = dS K, added to what other blocks add. The scale comes with the conversion.
template <class Config>
__device__ void add_dQ(const SharedTiles<Config>& s, const BackwardParams& p, const Workspace& workspace,
                       int b, int h, int query0) {
  const GradientGrid<Config> at;
  GradientRegisters<Config, Config::kBlockM> dQ;
  add_product_ab(at, dQ.x, s.P, s.K);
  float* gdQ =
      workspace.dQ + (static_cast<int64_t>(b) * p.H + h) * p.M * workspace.dq_pitch;  // [M, dq_pitch]
#pragma unroll
  for (int i = 0; i < dQ.kRows; ++i) {
    const int query = query0 + at.row(i);
    if (query >= p.M) continue;
#pragma unroll
    for (int j = 0; j < dQ.kColumns / 4; ++j) {
      const int d = at.column_of_four(j);
      const float(&x)[dQ.kColumns] = dQ.x[i];
      if (d < p.D) {
        atomic_add_four(gdQ + query * workspace.dq_pitch + d,
                        float4{x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]});
      }
    }
  }
}

/// factor dX for one row of a thread. gRow: [head_dim].
template <class Grid, int kColumns>
__device__ void write_gradient_row(const Grid& at, const float (&dX)[kColumns], float factor, void* data,
                                   int64_t offset, int head_dim, Dtype dtype) {
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const int d = at.column_of_four(j / 4) + j % 4;
    if (d < head_dim) store_as(dtype, data, offset + d, factor * dX[j]);
  }
}

/// dK = scale sum dS^T Q and dV = sum P^T dO of the block's keys, over every query head that reads them, and
/// this key tile's share of dQ. One block for each (key tile, b, key head).
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    key_gradients_kernel(BackwardParams p, Workspace workspace, Dtype dtype_gradient, bool aligned) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);

  // Heads vary fastest. The first key tiles come first: under a causal mask most rows see them.
  const int heads = p.B * p.Hk;
  const int key0 = static_cast<int>(blockIdx.x) / heads * Config::kBlockN;
  const int b = static_cast<int>(blockIdx.x) % heads / p.Hk;
  const int key_head = static_cast<int>(blockIdx.x) % heads % p.Hk;
  load_key_tile(s, p, b, key_head, key0, aligned);

  const GradientGrid<Config> at;
  GradientRegisters<Config, Config::kBlockN> dK, dV;
  const QueryRange<Config::kBlockM, Config::kBlockN> range(Window{p.window_lo, p.window_hi, p.N}, p.M, key0);
  for (int h = key_head * p.group; h < (key_head + 1) * p.group; ++h) {
    for (int tile = range.begin; tile < range.end; ++tile) {
      const int query0 = tile * Config::kBlockM;
      QueryTileLoads<Config> loads;
      loads.fetch(p, workspace, b, h, query0, aligned);
      __syncthreads();  // the tile before has been read
      loads.store(s);
      __syncthreads();
      if (range.is_full(tile)) {
        tile_probabilities<Config, false>(s, p, query0, key0);
      } else {
        tile_probabilities<Config, true>(s, p, query0, key0);
      }
      ScoreRegisters<Config> dP;
      tile_dP(s, dP);
      __syncthreads();  // P
      add_product_atb(at, dV.x, s.P, s.dO);
      __syncthreads();  // P has been read
      tile_dS(s, dP);
      __syncthreads();  // dS
      add_product_atb(at, dK.x, s.P, s.Q);
      if (!p.deterministic) add_dQ(s, p, workspace, b, h, query0);
    }
  }

  const int64_t dk = b * p.dk_stride.batch + key_head * p.dk_stride.head;
  const int64_t dv = b * p.dv_stride.batch + key_head * p.dv_stride.head;
#pragma unroll
  for (int i = 0; i < dK.kRows; ++i) {
    const int key = key0 + at.row_of_four(i / 4) + i % 4;
    if (key >= p.N) continue;
    write_gradient_row(at, dK.x[i], p.scale, p.dk, dk + key * p.dk_stride.seq, p.D, dtype_gradient);
    write_gradient_row(at, dV.x[i], 1.0f, p.dv, dv + key * p.dv_stride.seq, p.Dv, dtype_gradient);
  }
}

/// dQ = scale sum dS K of the block's queries. One block for each (query tile, b, h).
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksPerMultiprocessor)
    query_gradients_kernel(BackwardParams p, Workspace workspace, Dtype dtype_gradient, bool aligned) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedTiles<Config>*>(shared_bytes);

  // Heads vary fastest. The last query tiles come first: under a causal mask they see the most keys.
  const int heads = p.B * p.H;
  const int query_tiles = (p.M + Config::kBlockM - 1) / Config::kBlockM;
  const int query0 = (query_tiles - 1 - static_cast<int>(blockIdx.x) / heads) * Config::kBlockM;
  const int b = static_cast<int>(blockIdx.x) % heads / p.H;
  const int h = static_cast<int>(blockIdx.x) % heads % p.H;
  QueryTileLoads<Config> loads;
  loads.fetch(p, workspace, b, h, query0, aligned);
  loads.store(s);

  const GradientGrid<Config> at;
  GradientRegisters<Config, Config::kBlockM> dQ;
  const BlockRange<Config::kBlockN> range(Window{p.window_lo, p.window_hi, p.N}, query0,
                                          min(query0 + Config::kBlockM, p.M) - 1);
  for (int tile = range.begin; tile < range.end; ++tile) {
    const int key0 = tile * Config::kBlockN;
    __syncthreads();  // the tile before has been read
    load_key_tile(s, p, b, h / p.group, key0, aligned);
    __syncthreads();
    if (range.is_full(tile)) {
      tile_probabilities<Config, false>(s, p, query0, key0);
    } else {
      tile_probabilities<Config, true>(s, p, query0, key0);
    }
    ScoreRegisters<Config> dP;
    tile_dP(s, dP);
    tile_dS(s, dP);
    __syncthreads();  // dS
    add_product_ab(at, dQ.x, s.P, s.K);
  }

  const int64_t dq = b * p.dq_stride.batch + h * p.dq_stride.head;
#pragma unroll
  for (int i = 0; i < dQ.kRows; ++i) {
    const int query = query0 + at.row(i);
    if (query >= p.M) continue;
    write_gradient_row(at, dQ.x[i], p.scale, p.dq, dq + query * p.dq_stride.seq, p.D, dtype_gradient);
  }
}

}  // namespace fa::internal::v2_backward
