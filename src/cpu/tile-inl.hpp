// A tile of FlashAttention-2's forward pass (Dao, 2023, algorithm 1), over the vector operations of
// vec_highway-inl.hpp or vec_plain-inl.hpp. Included inside the namespace of its target.
//
// Everything is transposed, so that the queries are the vector lanes:
//
//   S^T = K Q^T         [keys][queries]      one element of K times a vector of queries
//   O^T += V^T P^T      [features][queries]  one element of V times a vector of queries
//
// K and V are read as they lie; m, l and alpha are vectors, and no step reduces across lanes. Only Q and O,
// touched once a tile, are transposed.

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// ---- exponential -----------------------------------------------------------------------------------

// e^x for x <= 0, NaN for NaN, 0 below the smallest normal number.
// x = n ln2 + r, |r| <= ln2 / 2, and e^x = 2^n e^r. The reduction in two parts and the polynomial of e^r are
// those of expf in Cephes (S. Moshier, 1989).
FA_INLINE Vec exp(Vec x) {
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits; 127 is the exponent's bias.
  const Vec shifter = broadcast(12582912.0f + 127.0f);
  const Vec shifted = mul_add(x, broadcast(1.44269504088896341f), shifter);
  const Vec n = sub(shifted, shifter);
  Vec r = mul_add(n, broadcast(-0.693359375f), x);
  r = mul_add(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = mul_add(p, r, broadcast(1.3981999507e-3f));
  p = mul_add(p, r, broadcast(8.3334519073e-3f));
  p = mul_add(p, r, broadcast(4.1665795894e-2f));
  p = mul_add(p, r, broadcast(1.6666665459e-1f));
  p = mul_add(p, r, broadcast(5.0000001201e-1f));
  p = mul_add(mul(p, r), r, r);
  p = add(p, broadcast(1.0f));
  // A product, not an addition to the exponent's bits: it keeps a NaN one.
  return zero_below(x, broadcast(-87.3365448f), mul(p, low_bits_to_exponent(shifted)));
}

// ---- rows between their element type and fp32 ------------------------------------------------------

// The last whole vector overlaps the one before it, so that no element beyond the row is touched.
inline void widen(Dtype dtype, const uint16_t* from, int64_t count, float* to) {
  const bool is_half = dtype == Dtype::float16;
  if (count < kLanes) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = is_half ? detail::half_value(from[i]) : detail::bfloat16_value(from[i]);
    }
    return;
  }
  for (int64_t next = 0; next < count; next += kLanes) {
    const int64_t i = std::min(next, count - kLanes);
    store(is_half ? load_half(from + i) : load_bfloat16(from + i), to + i);
  }
}

inline void narrow(Dtype dtype, const float* from, int64_t count, uint16_t* to) {
  const bool is_half = dtype == Dtype::float16;
  if (count < kLanes) {
    for (int64_t i = 0; i < count; ++i) {
      to[i] = is_half ? detail::half_bits(from[i]) : detail::bfloat16_bits(from[i]);
    }
    return;
  }
  for (int64_t next = 0; next < count; next += kLanes) {
    const int64_t i = std::min(next, count - kLanes);
    if (is_half) {
      store_half(load(from + i), to + i);
    } else {
      store_bfloat16(load(from + i), to + i);
    }
  }
}

// Rows [0, rows) of K or V in fp32, the first at element `offset`: in place, or widened into `memory`.
struct Rows {
  const float* data;
  int64_t stride;
};

inline Rows rows_in_fp32(Dtype dtype, const void* base, int64_t offset, int64_t stride, int64_t rows,
                         int64_t features, float* memory) {
  if (dtype == Dtype::float32) return {static_cast<const float*>(base) + offset, stride};
  const uint16_t* from = static_cast<const uint16_t*>(base) + offset;
  for (int64_t row = 0; row < rows; ++row) {
    widen(dtype, from + row * stride, features, memory + row * features);
  }
  return {memory, features};
}

// ---- matrix products -------------------------------------------------------------------------------

// A register tile: kRows rows of the result by kVecs vectors of columns.
//   acc[r][:] += sum over i < count of a[r * a_row + i * a_step] * b[i * b_row + :]
template <int kRows, int kVecs>
FA_INLINE void multiply_add(Vec (&acc)[kRows][kVecs], const float* a, int64_t a_row, int64_t a_step,
                            const float* b, int64_t b_row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Vec rB[kVecs];
    FA_UNROLL for (int v = 0; v < kVecs; ++v) rB[v] = load(b + v * kLanes);
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      const Vec rA = broadcast(a[r * a_row]);
      FA_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = mul_add(rA, rB[v], acc[r][v]);
    }
    a += a_step;
    b += b_row;
  }
}

// Rows of a register tile of kVecs vectors. 8 sums hide the latency of mul_add, and x86 addresses 8 rows of
// one stride from few enough registers.
template <int kVecs>
constexpr int kStripRows = std::min(8, kAccumulators / kVecs);

// Calls step<rows>(first row) for register tiles that cover rows [0, count).
template <int kRows, class Step>
FA_INLINE void cover_rows(int64_t count, const Step& step) {
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) step.template run<kRows>(row);
  if constexpr (kRows > 4) {
    if (row + 4 <= count) {
      step.template run<4>(row);
      row += 4;
    }
  }
  if constexpr (kRows > 2) {
    if (row + 2 <= count) {
      step.template run<2>(row);
      row += 2;
    }
  }
  if (row < count) step.template run<1>(row);
}

// Columns [column, column + kVecs * kLanes) of S^T = scale * K Q^T, masked; and their maximum.
template <int kVecs, bool kMasked>
struct ScoreStrip {
  Rows keys;
  int64_t head_dim;
  int64_t columns;
  int64_t column;
  float scale;
  const Scratch& scratch;

  template <int kRows>
  FA_INLINE void run(int64_t key) const {
    Vec acc[kRows][kVecs];
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      FA_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = broadcast(0.0f);
    }
    multiply_add<kRows, kVecs>(acc, keys.data + key * keys.stride, keys.stride, 1, scratch.query + column,
                               columns, head_dim);
    FA_UNROLL for (int v = 0; v < kVecs; ++v) {
      const int64_t lanes = column + v * kLanes;
      Vec block_max = load(scratch.block_max + lanes);
      FA_UNROLL for (int r = 0; r < kRows; ++r) {
        // Scaled before it is masked, so that a scale of 0 or below leaves -infinity alone.
        Vec s = mul(acc[r][v], broadcast(scale));
        if constexpr (kMasked) {
          s = if_between(load(scratch.first + lanes), broadcast(static_cast<float>(key + r)),
                         load(scratch.last + lanes), s, broadcast(kMinusInfinity));
        }
        block_max = max(block_max, s);
        store(s, scratch.score + (key + r) * columns + lanes);
      }
      store(block_max, scratch.block_max + lanes);
    }
  }
};

// The same columns of O^T = alpha O^T + V^T P^T.
template <int kVecs>
struct OutputStrip {
  Rows values;
  int64_t keys;
  int64_t columns;
  int64_t column;
  const Scratch& scratch;

  template <int kRows>
  FA_INLINE void run(int64_t feature) const {
    float* const output = scratch.output + feature * columns + column;
    // The block is summed on its own: added key by key to the sum over all blocks, millions of keys would
    // each be lost to its rounding.
    Vec acc[kRows][kVecs];
    FA_UNROLL for (int r = 0; r < kRows; ++r) {
      FA_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = broadcast(0.0f);
    }
    multiply_add<kRows, kVecs>(acc, values.data + feature, 1, values.stride, scratch.score + column, columns,
                               keys);
    FA_UNROLL for (int v = 0; v < kVecs; ++v) {
      const Vec alpha = load(scratch.alpha + column + v * kLanes);
      FA_UNROLL for (int r = 0; r < kRows; ++r) {
        float* const o = output + r * columns + v * kLanes;
        store(mul_add(load(o), alpha, acc[r][v]), o);
      }
    }
  }
};

// A strip of as many vectors as are left, at most kStripVecs.
template <int kVecs = kStripVecs>
void score_strip(int64_t vecs, bool masked, Rows keys, int64_t key_count, int64_t head_dim, int64_t columns,
                 int64_t column, float scale, const Scratch& scratch) {
  if constexpr (kVecs > 1) {
    if (vecs < kVecs) {
      score_strip<kVecs - 1>(vecs, masked, keys, key_count, head_dim, columns, column, scale, scratch);
      return;
    }
  }
  constexpr int kRows = kStripRows<kVecs>;
  if (masked) {
    cover_rows<kRows>(key_count, ScoreStrip<kVecs, true>{keys, head_dim, columns, column, scale, scratch});
  } else {
    cover_rows<kRows>(key_count, ScoreStrip<kVecs, false>{keys, head_dim, columns, column, scale, scratch});
  }
}

template <int kVecs = kStripVecs>
void output_strip(int64_t vecs, Rows values, int64_t key_count, int64_t head_dim_v, int64_t columns,
                  int64_t column, const Scratch& scratch) {
  if constexpr (kVecs > 1) {
    if (vecs < kVecs) {
      output_strip<kVecs - 1>(vecs, values, key_count, head_dim_v, columns, column, scratch);
      return;
    }
  }
  cover_rows<kStripRows<kVecs>>(head_dim_v, OutputStrip<kVecs>{values, key_count, columns, column, scratch});
}

// ---- the tile --------------------------------------------------------------------------------------

// What the steps of one tile share.
struct Job {
  const ForwardParams& params;
  const Tile& tile;
  Dtype dtype_in;
  Dtype dtype_out;
  const Scratch& scratch;
  int64_t columns;  // tile.rows in whole vectors; the columns beyond repeat the last row's bounds

  int64_t query(int column) const { return (tile.row + column) / params.group; }
  int64_t head(int column) const { return tile.kv_head * params.group + (tile.row + column) % params.group; }
};

// Q^T, zero in the columns beyond the tile's rows.
inline void pack_queries(const Job& job) {
  const ForwardParams& params = job.params;
  float* const query = job.scratch.query;
  for (int c = 0; c < job.tile.rows; ++c) {
    const int64_t offset = job.tile.batch * params.q_stride.batch + job.head(c) * params.q_stride.head +
                           job.query(c) * params.q_stride.seq;
    const Rows row = rows_in_fp32(job.dtype_in, params.q, offset, 0, 1, params.D, job.scratch.row);
    for (int64_t d = 0; d < params.D; ++d) query[d * job.columns + c] = row.data[d];
  }
  for (int64_t d = 0; d < params.D; ++d) {
    for (int64_t c = job.tile.rows; c < job.columns; ++c) query[d * job.columns + c] = 0.0f;
  }
}

// The keys that a query sees: [first, last], empty where first > last. Both grow with the query.
struct Bounds {
  int64_t first;
  int64_t last;
};

inline Bounds bounds_of(const Job& job, int64_t query) {
  return {std::max<int64_t>(0, query + job.params.window_lo),
          std::min<int64_t>(job.params.N - 1, query + job.params.window_hi)};
}

// Each column's bounds, counted from the block's first key. Exact in fp32: they are cut to the block.
inline void place_bounds(const Job& job, int64_t block_begin) {
  for (int64_t c = 0; c < job.columns; ++c) {
    const int row = static_cast<int>(std::min<int64_t>(c, job.tile.rows - 1));
    const Bounds bounds = bounds_of(job, job.query(row));
    job.scratch.first[c] = static_cast<float>(std::clamp<int64_t>(bounds.first - block_begin, 0, kBlockN));
    job.scratch.last[c] = static_cast<float>(std::clamp<int64_t>(bounds.last - block_begin, -1, kBlockN));
  }
}

inline Rows block_rows(const Job& job, const void* base, const Strides& stride, int64_t begin, int64_t count,
                       int64_t features) {
  const int64_t offset = job.tile.batch * stride.batch + job.tile.kv_head * stride.head + begin * stride.seq;
  return rows_in_fp32(job.dtype_in, base, offset, stride.seq, count, features, job.scratch.key_value);
}

// S^T of the block, and its maximum in block_max.
inline void score(const Job& job, int64_t begin, int64_t count, bool masked) {
  const ForwardParams& params = job.params;
  const Rows keys = block_rows(job, params.k, params.k_stride, begin, count, params.D);
  if (masked) place_bounds(job, begin);
  std::fill_n(job.scratch.block_max, job.columns, kMinusInfinity);
  for (int64_t column = 0; column < job.columns; column += kStripVecs * kLanes) {
    score_strip((job.columns - column) / kLanes, masked, keys, count, params.D, job.columns, column,
                params.scale, job.scratch);
  }
}

// P^T = exp(S^T - m) in place, with the new m; l and alpha to match.
inline void online_softmax(const Job& job, int64_t count) {
  const Scratch& scratch = job.scratch;
  for (int64_t c = 0; c < job.columns; c += kLanes) {
    const Vec m_before = load(scratch.m + c);
    const Vec m = max(m_before, load(scratch.block_max + c));
    // A column that has seen no key yet: 0 in the place of -infinity makes every exponential 0, not NaN.
    const Vec subtrahend = if_equal(m, broadcast(kMinusInfinity), broadcast(0.0f), m);
    const Vec alpha = exp(sub(m_before, subtrahend));
    Vec sum = broadcast(0.0f);
    float* p = scratch.score + c;
    for (int64_t j = 0; j < count; ++j, p += job.columns) {
      const Vec e = exp(sub(load(p), subtrahend));
      sum = add(sum, e);
      store(e, p);
    }
    store(m, scratch.m + c);
    store(alpha, scratch.alpha + c);
    store(mul_add(load(scratch.l + c), alpha, sum), scratch.l + c);
  }
}

inline void accumulate(const Job& job, int64_t begin, int64_t count) {
  const ForwardParams& params = job.params;
  const Rows values = block_rows(job, params.v, params.v_stride, begin, count, params.Dv);
  for (int64_t column = 0; column < job.columns; column += kStripVecs * kLanes) {
    output_strip((job.columns - column) / kLanes, values, count, params.Dv, job.columns, column, job.scratch);
  }
}

// O = O / l, rounded once more to out's type, and LSE = m + ln l. A row that saw no key has l = 0.
inline void write_rows(const Job& job) {
  const ForwardParams& params = job.params;
  const Scratch& scratch = job.scratch;
  for (int64_t c = 0; c < job.columns; c += kLanes) {
    const Vec zero = broadcast(0.0f);
    const Vec l = load(scratch.l + c);
    float* o = scratch.output + c;
    for (int64_t d = 0; d < params.Dv; ++d, o += job.columns) {
      store(if_equal(l, zero, zero, div(load(o), l)), o);
    }
  }
  for (int c = 0; c < job.tile.rows; ++c) {
    const int64_t head = job.head(c);
    const int64_t query = job.query(c);
    const int64_t offset = job.tile.batch * params.out_stride.batch + head * params.out_stride.head +
                           query * params.out_stride.seq;
    const bool in_place = job.dtype_out == Dtype::float32;
    float* const row = in_place ? static_cast<float*>(params.out) + offset : scratch.row;
    const float* o = scratch.output + c;
    for (int64_t d = 0; d < params.Dv; ++d, o += job.columns) row[d] = *o;
    if (!in_place) narrow(job.dtype_out, row, params.Dv, static_cast<uint16_t*>(params.out) + offset);

    if (params.lse != nullptr) {
      const float l = scratch.l[c];
      params.lse[(job.tile.batch * params.H + head) * params.M + query] =
          l == 0.0f ? kMinusInfinity : scratch.m[c] + std::log(l);
    }
  }
}

inline void run_tile(const ForwardParams& params, const Tile& tile, Dtype dtype_in, Dtype dtype_out,
                     const Scratch& scratch) {
  const int64_t columns = (tile.rows + kLanes - 1) / kLanes * kLanes;
  const Job job{params, tile, dtype_in, dtype_out, scratch, columns};

  pack_queries(job);
  std::fill_n(scratch.m, columns, kMinusInfinity);
  std::fill_n(scratch.l, columns, 0.0f);
  std::fill_n(scratch.output, params.Dv * columns, 0.0f);

  // Keys outside [begin, end) are hidden from every row; those in [full_begin, full_end) from none.
  const Bounds of_first = bounds_of(job, job.query(0));
  const Bounds of_last = bounds_of(job, job.query(tile.rows - 1));
  const int64_t begin = of_first.first, end = of_last.last + 1;
  const int64_t full_begin = of_last.first, full_end = of_first.last + 1;

  for (int64_t block = begin; block < end; block += kBlockN) {
    const int64_t count = std::min<int64_t>(kBlockN, end - block);
    const bool masked = block < full_begin || block + count > full_end;
    score(job, block, count, masked);
    online_softmax(job, count);
    accumulate(job, block, count);
  }
  write_rows(job);
}
