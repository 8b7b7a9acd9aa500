// The vector operations of tile-inl.hpp in Google Highway, limited to what its releases since 1.0 share.
// Included inside the namespace of its target.

namespace hn = hwy::HWY_NAMESPACE;

using VecTag = hn::ScalableTag<float>;
using Vec = hn::Vec<VecTag>;
using WordTag = hn::Rebind<uint32_t, VecTag>;
using HalfTag = hn::Rebind<hwy::float16_t, VecTag>;
using HalfBitsTag = hn::Rebind<uint16_t, VecTag>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(VecTag()));

// 6 rows of A by kStripVecs vectors of B: with B's row and one element of A, all of the 32 registers of
// AVX-512 and NEON, or of the 16 of AVX2. Loads stay below the two a cycle that the FMA units' rate allows.
#if HWY_TARGET == HWY_AVX2
constexpr int kStripVecs = 2;
#else
constexpr int kStripVecs = 4;
#endif
constexpr int kAccumulators = 6 * kStripVecs;

FA_INLINE Vec broadcast(float x) {
  return hn::Set(VecTag(), x);
}
FA_INLINE Vec load(const float* from) {
  return hn::LoadU(VecTag(), from);
}
FA_INLINE void store(Vec x, float* to) {
  hn::StoreU(x, VecTag(), to);
}
FA_INLINE Vec add(Vec a, Vec b) {
  return hn::Add(a, b);
}
FA_INLINE Vec sub(Vec a, Vec b) {
  return hn::Sub(a, b);
}
FA_INLINE Vec mul(Vec a, Vec b) {
  return hn::Mul(a, b);
}
FA_INLINE Vec div(Vec a, Vec b) {
  return hn::Div(a, b);
}
// a * b + c, fused or not.
FA_INLINE Vec mul_add(Vec a, Vec b, Vec c) {
  return hn::MulAdd(a, b, c);
}
// Where either is NaN: any of the two, or NaN.
FA_INLINE Vec max(Vec a, Vec b) {
  return hn::Max(a, b);
}

// x == y ? then : otherwise
FA_INLINE Vec if_equal(Vec x, Vec y, Vec then, Vec otherwise) {
  return hn::IfThenElse(hn::Eq(x, y), then, otherwise);
}

// first <= x && x <= last ? then : otherwise
FA_INLINE Vec if_between(Vec first, Vec x, Vec last, Vec then, Vec otherwise) {
  return hn::IfThenElse(hn::And(hn::Le(first, x), hn::Le(x, last)), then, otherwise);
}

// x < limit ? 0 : then
FA_INLINE Vec zero_below(Vec x, Vec limit, Vec then) {
  return hn::IfThenZeroElse(hn::Lt(x, limit), then);
}

// The float whose bits are those of x, shifted left by 23: the low bits become sign and exponent.
FA_INLINE Vec low_bits_to_exponent(Vec x) {
  return hn::BitCast(VecTag(), hn::ShiftLeft<23>(hn::BitCast(WordTag(), x)));
}

FA_INLINE Vec load_half(const uint16_t* from) {
  return hn::PromoteTo(VecTag(), hn::BitCast(HalfTag(), hn::LoadU(HalfBitsTag(), from)));
}

FA_INLINE Vec load_bfloat16(const uint16_t* from) {
  const auto words = hn::PromoteTo(WordTag(), hn::LoadU(HalfBitsTag(), from));
  return hn::BitCast(VecTag(), hn::ShiftLeft<16>(words));
}

FA_INLINE void store_half(Vec x, uint16_t* to) {
  hn::StoreU(hn::BitCast(HalfBitsTag(), hn::DemoteTo(HalfTag(), x)), HalfBitsTag(), to);
}

// In integers, as fa::bfloat16 does it: Highway's own conversion truncates in some releases.
FA_INLINE void store_bfloat16(Vec x, uint16_t* to) {
  const WordTag word;
  const auto bits = hn::BitCast(word, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(word, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(word, 0x7fffu)));
  const auto is_nan = hn::RebindMask(word, hn::Ne(x, x));
  const auto quiet = hn::Or(bits, hn::Set(word, 0x00400000u));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  const hn::Rebind<int32_t, VecTag> signed_word;
  hn::StoreU(hn::DemoteTo(HalfBitsTag(), hn::BitCast(signed_word, upper)), HalfBitsTag(), to);
}
