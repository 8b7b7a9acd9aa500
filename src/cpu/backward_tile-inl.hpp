// Tiles of FlashAttention-2's backward pass (Dao, 2023, algorithm 2), over the vector operations of
// vec_highway-inl.hpp or vec_plain-inl.hpp and the products of tile-inl.hpp, which precedes it. Included
// inside the namespace of its target.
//
// With P = exp(scale Q K^T - LSE) recovered block by block, Delta = rowsum(dO o O):
//
//   dV = P^T dO    dP = dO V^T    dS = P o (dP - Delta)    dQ = scale dS K    dK = scale dS^T Q
//
// A tile owns the rows whose gradients it computes, so that nothing is summed across threads and the result
// does not depend on their number: dQ in one kind of tile, dK and dV in another. S and dP are computed in
// both: seven products in place of five. The tile's rows are the vector lanes. In both kinds of tile
//
//   S  = block_qk lane_qk    [block rows][lanes]   one element of a block row times a vector of lanes
//   dP = block_ov lane_ov    [block rows][lanes]
//   gradient^T += block^T S  [features][lanes]
//
// as in the forward pass.

// ---- matrix products -------------------------------------------------------------------------------

// Columns [column, column + kVecs * kLanes) of to = rows * lanes: to[r][:] = sum over d of rows[r][d]
// lanes[d][:].
template <int kVecs>
struct ProductStrip {
  const float* rows;   // [count][features]
  const float* lanes;  // [features][columns]
  int64_t features;
  int64_t columns;
  int64_t column;
  float* to;  // [count][columns]

  template <int kRows>
  FA_INLINE void run(int64_t row) const {
    Vec acc[kRows][kVecs];
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      FA_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = broadcast(0.0f);
    }
    multiply_add<kRows, kVecs>(acc, rows + row * features, features, 1, lanes + column, columns, features);
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      FA_UNROLL for (int v = 0; v < kVecs; ++v) {
        store(acc[r][v], to + (row + r) * columns + column + v * kLanes);
      }
    }
  }
};

// The same columns of sums += rows^T weights: sums[f][:] += sum over r of rows[r][f] weights[r][:].
template <int kVecs>
struct SumStrip {
  const float* rows;     // [count][features]
  const float* weights;  // [count][columns]
  int64_t count;
  int64_t features;
  int64_t columns;
  int64_t column;
  float* sums;  // [features][columns]

  template <int kRows>
  FA_INLINE void run(int64_t feature) const {
    // The block is summed on its own, as in OutputStrip.
    Vec acc[kRows][kVecs];
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      FA_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = broadcast(0.0f);
    }
    multiply_add<kRows, kVecs>(acc, rows + feature, 1, features, weights + column, columns, count);
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      FA_UNROLL for (int v = 0; v < kVecs; ++v) {
        float* const sum = sums + (feature + r) * columns + column + v * kLanes;
        store(add(load(sum), acc[r][v]), sum);
      }
    }
  }
};

// A strip of as many vectors as are left, at most kVecs, over `rows` rows of its result.
template <int kVecs, template <int> class Strip, class... Fields>
void strip(int64_t vecs, int64_t rows, Fields... fields) {
  if constexpr (kVecs > 1) {
    if (vecs < kVecs) {
      strip<kVecs - 1, Strip>(vecs, rows, fields...);
      return;
    }
  }
  cover_rows<kStripRows<kVecs>>(rows, Strip<kVecs>{fields...});
}

inline void product(const float* rows, int64_t count, const float* lanes, int64_t features, int64_t columns,
                    float* to) {
  for (int64_t column = 0; column < columns; column += kStripVecs * kLanes) {
    strip<kStripVecs, ProductStrip>((columns - column) / kLanes, count, rows, lanes, features, columns,
                                    column, to);
  }
}

inline void add_products(const float* rows, int64_t count, const float* weights, int64_t features,
                         int64_t columns, float* sums) {
  for (int64_t column = 0; column < columns; column += kStripVecs * kLanes) {
    strip<kStripVecs, SumStrip>((columns - column) / kLanes, features, rows, weights, count, features,
                                columns, column, sums);
  }
}

// ---- P and dS --------------------------------------------------------------------------------------

// e^x for x <= 0, 1 above. S <= LSE, but for the rounding of a large LSE, whose e^(S - LSE) could be
// infinite. NaN stays NaN.
FA_INLINE Vec exp_up_to_one(Vec x) {
  const Vec minus_infinity = broadcast(kMinusInfinity), zero = broadcast(0.0f),
            infinity = broadcast(-kMinusInfinity);
  const Vec above = if_between(zero, x, infinity, broadcast(1.0f), x);
  return if_between(minus_infinity, x, zero, exp(x), above);
}

// What belongs to the query of element [r][c]. kKeysAreLanes: block row r is a query; else a lane is.
template <bool kKeysAreLanes>
FA_INLINE Vec of_query(const float* values, int64_t r, int64_t c) {
  return kKeysAreLanes ? broadcast(values[r]) : load(values + c);
}

// Turns S into P = exp(scale S - LSE) and dP into dS = P (dP - Delta).
template <bool kKeysAreLanes, bool kMasked>
void recover_block(const BackwardScratch& scratch, int64_t count, int64_t columns, float scale) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      float* const s = scratch.score + r * columns + c;
      float* const dp = scratch.score_grad + r * columns + c;
      Vec p = exp_up_to_one(sub(mul(load(s), broadcast(scale)), of_query<kKeysAreLanes>(scratch.lse, r, c)));
      Vec ds = mul(p, sub(load(dp), of_query<kKeysAreLanes>(scratch.delta, r, c)));
      if constexpr (kMasked) {
        const Vec key = kKeysAreLanes ? load(scratch.lane + c) : broadcast(static_cast<float>(r));
        const Vec first = of_query<kKeysAreLanes>(scratch.first, r, c);
        const Vec last = of_query<kKeysAreLanes>(scratch.last, r, c);
        const Vec zero = broadcast(0.0f);
        p = if_between(first, key, last, p, zero);
        ds = if_between(first, key, last, ds, zero);
      }
      store(p, s);
      store(ds, dp);
    }
  }
}

// ---- rows ------------------------------------------------------------------------------------------

// What the steps of one backward tile share.
struct BackwardJob {
  const BackwardParams& params;
  const BackwardTile& tile;
  Dtype dtype_in;
  Dtype dtype_gradient;
  const BackwardScratch& scratch;
  int64_t columns;  // tile.rows in whole vectors

  // Query rows are numbered as in Tile.
  int64_t query(int64_t row) const { return row / params.group; }
  int64_t head(int64_t row) const { return tile.kv_head * params.group + row % params.group; }

  int64_t query_offset(const Strides& stride, int64_t row) const {
    return tile.batch * stride.batch + head(row) * stride.head + query(row) * stride.seq;
  }
  int64_t key_offset(const Strides& stride, int64_t key) const {
    return tile.batch * stride.batch + tile.kv_head * stride.head + key * stride.seq;
  }

  // The keys that a query sees.
  Bounds bounds(int64_t row) const {
    return {std::max<int64_t>(0, query(row) + params.window_lo),
            std::min<int64_t>(params.N - 1, query(row) + params.window_hi)};
  }
};

inline const float* row_in_fp32(const BackwardJob& job, const void* base, int64_t offset, int64_t features) {
  return rows_in_fp32(job.dtype_in, base, offset, 0, 1, features, job.scratch.row).data;
}

// lanes[d][c] = row c of the tile; zero beyond its rows. offset(c): its first element.
template <class Offset>
void pack_lanes(const BackwardJob& job, const void* base, int64_t features, float* lanes,
                const Offset& offset) {
  for (int64_t c = 0; c < job.columns; ++c) {
    if (c >= job.tile.rows) {
      for (int64_t d = 0; d < features; ++d) lanes[d * job.columns + c] = 0.0f;
      continue;
    }
    const float* const row = row_in_fp32(job, base, offset(c), features);
    for (int64_t d = 0; d < features; ++d) lanes[d * job.columns + c] = row[d];
  }
}

// block[r][:] = row r of the block.
template <class Offset>
void copy_block(const BackwardJob& job, const void* base, int64_t count, int64_t features, float* block,
                const Offset& offset) {
  for (int64_t r = 0; r < count; ++r) {
    const float* const row = row_in_fp32(job, base, offset(r), features);
    std::copy(row, row + features, block + r * features);
  }
}

// LSE and Delta of query row `row`, and the keys it sees counted from `first_key` (exact in fp32: cut to a
// block), at `at`.
inline void place_query(const BackwardJob& job, int64_t row, int64_t first_key, int64_t at) {
  const BackwardParams& params = job.params;
  const int64_t index = (job.tile.batch * params.H + job.head(row)) * params.M + job.query(row);
  // A row that saw no key: 0 in the place of -infinity keeps exp(-infinity + infinity) from being NaN.
  const float lse = params.lse[index];
  job.scratch.lse[at] = lse == kMinusInfinity ? 0.0f : lse;
  job.scratch.delta[at] = job.tile.delta[index];
  const Bounds bounds = job.bounds(row);
  job.scratch.first[at] = static_cast<float>(std::clamp<int64_t>(bounds.first - first_key, 0, kBlockN));
  job.scratch.last[at] = static_cast<float>(std::clamp<int64_t>(bounds.last - first_key, -1, kBlockN));
}

// Rounds lane c of factor * gradient to the gradients' type. offset(c): its first element.
template <class Offset>
void write_lanes(const BackwardJob& job, const float* gradient, float factor, int64_t features, void* to,
                 const Offset& offset) {
  const bool in_place = job.dtype_gradient == Dtype::float32;
  for (int64_t c = 0; c < job.tile.rows; ++c) {
    float* const row = in_place ? static_cast<float*>(to) + offset(c) : job.scratch.row;
    for (int64_t d = 0; d < features; ++d) row[d] = factor * gradient[d * job.columns + c];
    if (!in_place) narrow(job.dtype_gradient, row, features, static_cast<uint16_t*>(to) + offset(c));
  }
}

inline int64_t whole_vectors(int rows) {
  return (rows + kLanes - 1) / kLanes * kLanes;
}

// ---- the tiles -------------------------------------------------------------------------------------

inline void run_query_tile(const BackwardParams& params, const BackwardTile& tile, Dtype dtype_in,
                           Dtype dtype_gradient, const BackwardScratch& scratch) {
  const BackwardJob job{params, tile, dtype_in, dtype_gradient, scratch, whole_vectors(tile.rows)};
  const auto of_lane = [&](const Strides& stride) {
    return [&job, &stride](int64_t c) { return job.query_offset(stride, job.tile.row + c); };
  };
  pack_lanes(job, params.q, params.D, scratch.lane_qk, of_lane(params.q_stride));
  pack_lanes(job, params.dout, params.Dv, scratch.lane_ov, of_lane(params.dout_stride));
  std::fill_n(scratch.gradient_qk, params.D * job.columns, 0.0f);

  // Keys outside [begin, end) are hidden from every row; those in [full_begin, full_end) from none.
  const Bounds of_first = job.bounds(tile.row);
  const Bounds of_last = job.bounds(tile.row + tile.rows - 1);
  const int64_t begin = of_first.first, end = of_last.last + 1;
  const int64_t full_begin = of_last.first, full_end = of_first.last + 1;

  for (int64_t block = begin; block < end; block += kBlockN) {
    const int64_t count = std::min<int64_t>(kBlockN, end - block);
    const auto of_row = [&](const Strides& stride) {
      return [&job, &stride, block](int64_t r) { return job.key_offset(stride, block + r); };
    };
    copy_block(job, params.k, count, params.D, scratch.block_qk, of_row(params.k_stride));
    copy_block(job, params.v, count, params.Dv, scratch.block_ov, of_row(params.v_stride));
    for (int64_t c = 0; c < job.columns; ++c) {
      place_query(job, tile.row + std::min<int64_t>(c, tile.rows - 1), block, c);
    }
    product(scratch.block_qk, count, scratch.lane_qk, params.D, job.columns, scratch.score);
    product(scratch.block_ov, count, scratch.lane_ov, params.Dv, job.columns, scratch.score_grad);
    if (block < full_begin || block + count > full_end) {
      recover_block<false, true>(scratch, count, job.columns, params.scale);
    } else {
      recover_block<false, false>(scratch, count, job.columns, params.scale);
    }
    add_products(scratch.block_qk, count, scratch.score_grad, params.D, job.columns, scratch.gradient_qk);
  }
  write_lanes(job, scratch.gradient_qk, params.scale, params.D, params.dq, of_lane(params.dq_stride));
}

inline void run_key_tile(const BackwardParams& params, const BackwardTile& tile, Dtype dtype_in,
                         Dtype dtype_gradient, const BackwardScratch& scratch) {
  const BackwardJob job{params, tile, dtype_in, dtype_gradient, scratch, whole_vectors(tile.rows)};
  const auto of_lane = [&](const Strides& stride) {
    return [&job, &stride](int64_t c) { return job.key_offset(stride, job.tile.row + c); };
  };
  pack_lanes(job, params.k, params.D, scratch.lane_qk, of_lane(params.k_stride));
  pack_lanes(job, params.v, params.Dv, scratch.lane_ov, of_lane(params.v_stride));
  std::fill_n(scratch.gradient_qk, params.D * job.columns, 0.0f);
  std::fill_n(scratch.gradient_v, params.Dv * job.columns, 0.0f);
  for (int64_t c = 0; c < job.columns; ++c) scratch.lane[c] = static_cast<float>(c);

  // Queries i that see a key of the tile: i + window_hi reaches the first, i + window_lo does not pass the
  // last.
  const int64_t last_key = tile.row + tile.rows - 1;
  const int64_t first_query = std::max<int64_t>(0, tile.row - params.window_hi);
  const int64_t last_query = std::min<int64_t>(params.M - 1, last_key - params.window_lo);
  const int64_t begin = first_query * params.group, end = (last_query + 1) * params.group;

  for (int64_t block = begin; block < end; block += kBlockN) {
    const int64_t count = std::min<int64_t>(kBlockN, end - block);
    const auto of_row = [&](const Strides& stride) {
      return [&job, &stride, block](int64_t r) { return job.query_offset(stride, block + r); };
    };
    copy_block(job, params.q, count, params.D, scratch.block_qk, of_row(params.q_stride));
    copy_block(job, params.dout, count, params.Dv, scratch.block_ov, of_row(params.dout_stride));
    for (int64_t r = 0; r < count; ++r) place_query(job, block + r, tile.row, r);
    product(scratch.block_qk, count, scratch.lane_qk, params.D, job.columns, scratch.score);
    product(scratch.block_ov, count, scratch.lane_ov, params.Dv, job.columns, scratch.score_grad);
    // Bounds grow with the query: the last row's first key and the first row's last tell for all.
    if (job.bounds(block + count - 1).first > tile.row || job.bounds(block).last < last_key) {
      recover_block<true, true>(scratch, count, job.columns, params.scale);
    } else {
      recover_block<true, false>(scratch, count, job.columns, params.scale);
    }
    add_products(scratch.block_ov, count, scratch.score, params.Dv, job.columns, scratch.gradient_v);
    add_products(scratch.block_qk, count, scratch.score_grad, params.D, job.columns, scratch.gradient_qk);
  }
  write_lanes(job, scratch.gradient_qk, params.scale, params.D, params.dk, of_lane(params.dk_stride));
  write_lanes(job, scratch.gradient_v, 1.0f, params.Dv, params.dv, of_lane(params.dv_stride));
}
