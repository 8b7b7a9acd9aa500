// The vector operations of tile-inl.hpp in portable C++: loops of a length that compilers vectorise.
// Included inside the namespace of its target.

constexpr int kLanes = 8;
constexpr int kStripVecs = 1;     // vectors of a register tile's row
constexpr int kAccumulators = 4;  // vectors of a register tile: 8 registers of 16, at 4 floats each

struct Vec {
  float lane[kLanes];
};

FA_INLINE Vec broadcast(float x) {
  Vec result;
  for (float& lane : result.lane) lane = x;
  return result;
}

FA_INLINE Vec load(const float* from) {
  Vec result;
  std::memcpy(result.lane, from, sizeof result.lane);
  return result;
}

FA_INLINE void store(Vec x, float* to) {
  std::memcpy(to, x.lane, sizeof x.lane);
}

FA_INLINE Vec add(Vec a, Vec b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] += b.lane[i];
  return a;
}

FA_INLINE Vec sub(Vec a, Vec b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] -= b.lane[i];
  return a;
}

FA_INLINE Vec mul(Vec a, Vec b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] *= b.lane[i];
  return a;
}

FA_INLINE Vec div(Vec a, Vec b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] /= b.lane[i];
  return a;
}

// a * b + c, fused or not.
FA_INLINE Vec mul_add(Vec a, Vec b, Vec c) {
  for (int i = 0; i < kLanes; ++i) c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}

// Where either is NaN: any of the two.
FA_INLINE Vec max(Vec a, Vec b) {
  for (int i = 0; i < kLanes; ++i) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}

// x == y ? then : otherwise
FA_INLINE Vec if_equal(Vec x, Vec y, Vec then, Vec otherwise) {
  for (int i = 0; i < kLanes; ++i) x.lane[i] = x.lane[i] == y.lane[i] ? then.lane[i] : otherwise.lane[i];
  return x;
}

// first <= x && x <= last ? then : otherwise
FA_INLINE Vec if_between(Vec first, Vec x, Vec last, Vec then, Vec otherwise) {
  for (int i = 0; i < kLanes; ++i) {
    const bool between = (first.lane[i] <= x.lane[i]) & (x.lane[i] <= last.lane[i]);
    x.lane[i] = between ? then.lane[i] : otherwise.lane[i];
  }
  return x;
}

// x < limit ? 0 : then
FA_INLINE Vec zero_below(Vec x, Vec limit, Vec then) {
  for (int i = 0; i < kLanes; ++i) x.lane[i] = x.lane[i] < limit.lane[i] ? 0.0f : then.lane[i];
  return x;
}

// The float whose bits are those of x, shifted left by 23: the low bits become sign and exponent.
FA_INLINE Vec low_bits_to_exponent(Vec x) {
  uint32_t bits[kLanes];
  std::memcpy(bits, x.lane, sizeof bits);
  for (uint32_t& word : bits) word <<= 23;
  std::memcpy(x.lane, bits, sizeof bits);
  return x;
}

FA_INLINE Vec load_half(const uint16_t* from) {
  Vec result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = detail::half_value(from[i]);
  return result;
}

FA_INLINE Vec load_bfloat16(const uint16_t* from) {
  Vec result;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = detail::bfloat16_value(from[i]);
  return result;
}

FA_INLINE void store_half(Vec x, uint16_t* to) {
  for (int i = 0; i < kLanes; ++i) to[i] = detail::half_bits(x.lane[i]);
}

FA_INLINE void store_bfloat16(Vec x, uint16_t* to) {
  for (int i = 0; i < kLanes; ++i) to[i] = detail::bfloat16_bits(x.lane[i]);
}
