/// A warp's query rows with their whole state in registers (introduced by V3): a lane holds one key's scores
/// of every row, some columns of O, and m and l of every row, the same in all lanes.
#pragma once

#include "kernels/device/attention/mask.cuh"
#include "kernels/device/attention/online_softmax.cuh"
#include "kernels/device/tile/convert.cuh"
#include "kernels/device/tile/reduce.cuh"

namespace fa::internal {

template <int kRows, int kColumns>
struct WarpRows {
  float m[kRows];
  float l[kRows];
  float O[kRows][kColumns];  // not normalised; which columns a lane owns is its rung's choice

  __device__ WarpRows() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      m[i] = no_score();
      l[i] = 0.0f;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) O[i][c] = 0.0f;
    }
  }

  /// Row i to a new maximum.
  __device__ void rescale(int i, float factor) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) O[i][c] *= factor;
  }
};

/// The scores of the warp's rows, scaled; those of hidden keys become -infinity. query, key: the warp's first
/// row and this lane's key.
template <bool kMasked, int kRows>
__device__ void scale_and_mask(float (&S)[kRows], const ForwardParams& p, int query, int key) {
  const Window window = window_of(p);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool visible = !kMasked || window.sees(query + i, key);
    S[i] = visible ? S[i] * p.scale : no_score();
  }
}

/// How V3 to V5 reduce and exponentiate: a tree down to lane 0 that hands its result back, and expf to the
/// last bit but two.
struct PlainSoftmax {
  static __device__ float max(float x) { return tree_max(x); }
  static __device__ float sum(float x) { return tree_sum(x); }
  static __device__ float exp(float x) { return expf(x); }
};

/// The online softmax of the warp's rows over one key tile: S becomes P = e^(S - m); m and l take the tile
/// in, and O is rescaled to the new maximum. Rows: a WarpRows, or one that rescales in a way of its own.
template <class Softmax, class Rows, int kRows>
__device__ void softmax_rows(Rows& rows, float (&S)[kRows]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float m_new = fmaxf(rows.m[i], Softmax::max(S[i]));
    const float rescale = Softmax::exp(rows.m[i] - finite_max(m_new));
    S[i] = Softmax::exp(S[i] - finite_max(m_new));
    rows.m[i] = m_new;
    rows.l[i] = rescale * rows.l[i] + Softmax::sum(S[i]);
    rows.rescale(i, rescale);
  }
}

/// O / l and m + ln(l) of the warp's rows, once. column[c]: where this lane's c-th column lies.
template <int kRows, int kColumns>
__device__ void write_rows(const WarpRows<kRows, kColumns>& rows, const ForwardParams& p, Dtype dtype_out,
                           int b, int h, int query0, const int (&column)[kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int query = query0 + i;
    if (query >= p.M) return;
    const float normalise = inverse_sum(rows.l[i]);
    const int64_t offset = b * p.out_stride.batch + h * p.out_stride.head + query * p.out_stride.seq;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      store_as(dtype_out, p.out, offset + column[c], rows.O[i][c] * normalise);
    }
    if (p.lse != nullptr && threadIdx.x % 32 == 0) {
      p.lse[(static_cast<int64_t>(b) * p.H + h) * p.M + query] = log_sum_exp(rows.m[i], rows.l[i]);
    }
  }
}

}  // namespace fa::internal
