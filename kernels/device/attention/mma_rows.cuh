/// A warp's query rows in the registers of mma.m16n8k16 (introduced by V7): scores, probabilities, O and the
/// softmax's state. With g = lane / 4 and t = lane % 4, a lane holds of every 16 rows the rows g and g + 8,
/// and of every 8 columns the columns 2t and 2t + 1.
#pragma once

#include "kernels/device/attention/mask.cuh"
#include "kernels/device/attention/online_softmax.cuh"
#include "kernels/device/ptx/ex2.cuh"
#include "kernels/device/tile/convert.cuh"
#include "kernels/device/tile/reduce.cuh"
#include "kernels/device/tile/swizzle.cuh"

namespace fa::internal {

template <class Config>
struct MmaRows {
  using T = typename Config::Element;
  static constexpr int kRowBlocks = Config::kRowBlocks;        // of 16 rows
  static constexpr int kKeyColumns = 2 * Config::kKeyBlocks;   // of 8 keys
  static constexpr int kColumns = 2 * Config::kFeatureBlocks;  // of 8 features

  // Before a row has seen a key: no score is lower, and 2^(-infinity - R) is 0.
  static constexpr float kNoReference = -3.4028234663852886e38f;
  // S factor - R has an exact product, so that at the largest score it is not 0 but the rounding of R. O, l
  // and LSE share R, but P is then rounded, and of a single visible key it should be 1: up to here it is.
  // Beyond, the product is rounded as R is.
  static constexpr float kLargestReference = 0x1p10f;

  float S[kRowBlocks][kKeyColumns][4];  // scores, not scaled, then probabilities
  float O[kRowBlocks][kColumns][4];     // not normalised
  float R[kRowBlocks][2];               // what P is relative to, in powers of two
  float l[kRowBlocks][2];               // this lane's part of the sum, until finish()
  float top[kRowBlocks][2];             // the largest score so far, not scaled

  float factor;  // of the tile

  __device__ MmaRows() {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        R[i][half] = kNoReference;
        l[i][half] = 0.0f;
        top[i][half] = no_score();
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) O[i][c][e] = 0.0f;
      }
    }
  }

  __device__ void clear_scores() {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int c = 0; c < kKeyColumns; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) S[i][c][e] = 0.0f;
      }
    }
  }

  /// Row of element e in row block i, from the warp's first.
  __device__ static int row_of(int i, int e) {
    return 16 * i + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * (e / 2);
  }
  /// Column of element e in column block c.
  __device__ static int column_of(int c, int e) {
    return 8 * c + static_cast<int>(threadIdx.x) % 4 * 2 + e % 2;
  }

  /// Scores of hidden keys become -infinity. query0, key0: the warp's first row and the tile's first key.
  __device__ void mask_scores(const Window& window, int query0, int key0) {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = query0 + row_of(i, 2 * half);
        // The row's visible keys, relative to this lane's column 0.
        const int shift = key0 + column_of(0, 0);
        const int first = window.first_key(query) - shift, last = window.last_key(query) - shift;
#pragma unroll
        for (int c = 0; c < kKeyColumns; ++c) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = 8 * c + e;
            if (key < first || key > last) S[i][c][2 * half + e] = no_score();
          }
        }
      }
    }
  }

  /// Beyond kLargestReference, of a row that has seen a key.
  __device__ static bool is_large(float R) {
    return fabsf(R) > kLargestReference && R > kNoReference;
  }

  /// Takes a tile's scores into top, and returns what R becomes: the largest score times scale_log2, rounded,
  /// where that lies more than Config::kRescaleThreshold above R, else R as it is. P is then up to
  /// 2^kRescaleThreshold; O, l and LSE have one R as ever, and nothing is to be rescaled. scale_log2 > 0.
  __device__ float next_reference(int i, int half, float scale_log2) {
    float x = top[i][half];
#pragma unroll
    for (int c = 0; c < kKeyColumns; ++c) x = fmaxf(x, fmaxf(S[i][c][2 * half], S[i][c][2 * half + 1]));
    top[i][half] = group_max<4>(x);
    const float largest = top[i][half] * scale_log2;
    return largest - R[i][half] > Config::kRescaleThreshold ? largest : R[i][half];
  }

  /// The online softmax over one key tile, first half: P = 2^(factor S - R), with O and l rescaled where R
  /// has grown in some row of the warp. scale_log2 > 0.
  __device__ void update_reference(float scale_log2) {
    float R_new[kRowBlocks][2];
    bool grown = false, large = false;
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        R_new[i][half] = next_reference(i, half, scale_log2);
        grown |= R_new[i][half] > R[i][half];
        large |= is_large(R_new[i][half]);
      }
    }
    if (__any_sync(kFullWarp, grown)) move_reference(R_new);
    factor = scale_log2;
    if (__any_sync(kFullWarp, large)) {
      factor = 1.0f;
      scale_scores(scale_log2);
    }
  }

  /// R becomes R_new; O and l are rescaled to it.
  __device__ void move_reference(const float (&R_new)[kRowBlocks][2]) {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float rescale = ptx::ex2(R[i][half] - R_new[i][half]);
        R[i][half] = R_new[i][half];
        l[i][half] *= rescale;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          O[i][c][2 * half] *= rescale;
          O[i][c][2 * half + 1] *= rescale;
        }
      }
    }
  }

  /// S becomes S scale_log2, rounded.
  __device__ void scale_scores(float scale_log2) {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int c = 0; c < kKeyColumns; ++c) {
#pragma unroll
        for (int e = 0; e < 4; ++e) S[i][c][e] *= scale_log2;
      }
    }
  }

  /// Second half, for the 16 keys of block j and the rows of block i: S becomes P, and l gets the lane's
  /// sums.
  __device__ void exponentiate(int i, int j) {
#pragma unroll
    for (int c = 2 * j; c < 2 * j + 2; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& first = S[i][c][2 * half];
        float& second = S[i][c][2 * half + 1];
        first = ptx::ex2(first * factor - R[i][half]);
        second = ptx::ex2(second * factor - R[i][half]);
        l[i][half] += first + second;
      }
    }
  }

  /// The same for all of the tile.
  __device__ void exponentiate() {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < Config::kKeyBlocks; ++j) exponentiate(i, j);
    }
  }

  /// P of row block i and the 16 keys of block j as a left operand: the accumulators of Q K^T lie as it wants
  /// them.
  __device__ void pack_probabilities(uint32_t (&P)[4], int i, int j) const {
    P[0] = pack<T>(S[i][2 * j][0], S[i][2 * j][1]);
    P[1] = pack<T>(S[i][2 * j][2], S[i][2 * j][3]);
    P[2] = pack<T>(S[i][2 * j + 1][0], S[i][2 * j + 1][1]);
    P[3] = pack<T>(S[i][2 * j + 1][2], S[i][2 * j + 1][3]);
  }

  /// 1 / the sum that O is divided by. l_row: the row's whole sum.
  ///
  /// P of the largest score is 1 where R is that score. Above R it is rounded to T, by up to half a unit, of
  /// which the O of a row that one key dominates would keep all: so the sum takes that P as it was rounded.
  /// LSE has the sum as it is. Of several keys that share the largest score the sum takes one: O of such a
  /// row keeps up to half a unit of T.
  __device__ float normalisation(int i, int half, float l_row, float scale_log2) const {
    const float rounded = __fmul_rn(top[i][half], scale_log2) - R[i][half];
    const float exact = fmaf(top[i][half], scale_log2, -R[i][half]);
    // As in the tile, but for a row below kLargestReference beside one beyond, whose tile had rounded scores
    // too.
    const float P = ptx::ex2(is_large(R[i][half]) ? rounded : exact);
    return inverse_sum(l_row + (to_float(from_float<T>(P)) - P));
  }

  /// The lanes' sums meet, and O is normalised.
  __device__ void finish(float scale_log2) {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        l[i][half] = group_sum<4>(l[i][half]);
        const float normalise = normalisation(i, half, l[i][half], scale_log2);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          O[i][c][2 * half] *= normalise;
          O[i][c][2 * half + 1] *= normalise;
        }
      }
    }
  }

  /// After finish(). query0: the warp's first row.
  __device__ void write_lse(const ForwardParams& p, int b, int h, int query0) const {
    if (p.lse == nullptr || threadIdx.x % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = query0 + row_of(i, 2 * half);
        if (query >= p.M) continue;
        p.lse[(static_cast<int64_t>(b) * p.H + h) * p.M + query] = log_sum_exp2(R[i][half], l[i][half]);
      }
    }
  }

  /// After finish(). Through the warp's own rows of a swizzled tile, so that 16 bytes leave at a time;
  /// straight from registers where out has another type, rows that are not aligned, or no whole chunks: a Dv
  /// that is no multiple of 8.
  __device__ void write_output(const ForwardParams& p, Dtype dtype_out, int b, int h, int query0, T* sRows,
                               bool whole_chunks = true) const {
    using Layout = Swizzle<Config::kHeadDim>;
    const int64_t stride = p.out_stride.seq;
    const int64_t first = b * p.out_stride.batch + h * p.out_stride.head + query0 * stride;
    const uintptr_t address =
        reinterpret_cast<uintptr_t>(p.out) | static_cast<uintptr_t>(first | stride) * sizeof(T);
    if (dtype_out != dtype_of<T> || address % 16 != 0 || !whole_chunks) {
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = row_of(i, e), column = column_of(c, e);
            if (query0 + row < p.M && column < p.Dv) {
              store_as(dtype_out, p.out, first + row * stride + column, O[i][c][e]);
            }
          }
        }
      }
      return;
    }
    char* const bytes = reinterpret_cast<char*>(sRows);
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = Layout::offset(row_of(i, 2 * half), c) + static_cast<int>(threadIdx.x) % 4 * 4;
          *reinterpret_cast<uint32_t*>(bytes + at) = pack<T>(O[i][c][2 * half], O[i][c][2 * half + 1]);
        }
      }
    }
    __syncwarp();
    T* const gOut = static_cast<T*>(p.out) + first;
#pragma unroll
    for (int n = 0; n < 16 * kRowBlocks * Layout::kChunks / 32; ++n) {
      const int i = n * 32 + static_cast<int>(threadIdx.x) % 32;
      const int row = i / Layout::kChunks, chunk = i % Layout::kChunks;
      if (query0 + row < p.M && chunk * 8 < p.Dv) {
        *reinterpret_cast<uint4*>(gOut + row * stride + chunk * 8) =
            *reinterpret_cast<const uint4*>(bytes + Layout::offset(row, chunk));
      }
    }
  }
};

}  // namespace fa::internal
