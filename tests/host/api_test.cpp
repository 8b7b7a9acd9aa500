/// The C++ door: arguments, overloads, exceptions, tensors, and what is known at compile time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::test {
namespace {

// ---- at compile time
// ------------------------------------------------------------------------------------------

static_assert(exists<CPU, float> && exists<CPU, half> && exists<CPU, bfloat16>);
static_assert(exists<Auto, float> && exists<Auto, half> && exists<Auto, bfloat16>);
static_assert(exists<CPU, float, Pass::forward>);
static_assert(!exists<CPU, double> && !exists<Auto, int> && !exists<V8, void*>);
static_assert(std::is_same_v<decltype(exists<CPU, float>), const bool>);
static_assert(dtype_of<float> == Dtype::float32 && dtype_of<half> == Dtype::float16 &&
              dtype_of<bfloat16> == Dtype::bfloat16 && dtype_of<double> == Dtype::none);
static_assert(size_of(Dtype::float32) == 4 && size_of(Dtype::float16) == 2 && size_of(Dtype::bfloat16) == 2 &&
              size_of(Dtype::none) == 0);
#if defined(FLASHATTN_HAS_CUDA_TYPES)
static_assert(exists<CPU, __half> && exists<CPU, __nv_bfloat16>);
static_assert(dtype_of<__half> == Dtype::float16 && dtype_of<__nv_bfloat16> == Dtype::bfloat16);
#endif
static_assert(Mask::full().left == -1 && Mask::full().right == -1);
static_assert(Mask::causal().left == -1 && Mask::causal().right == 0 &&
              Mask::causal().alignment == Alignment::bottom_right);
static_assert(Mask::causal_top_left().right == 0 && Mask::causal_top_left().alignment == Alignment::top_left);
static_assert(Mask::window(3, 4).left == 3 && Mask::window(3, 4).right == 4 &&
              Mask::window(3, 4, Alignment::top_left).alignment == Alignment::top_left);
static_assert(std::is_base_of_v<Error, InvalidArgument> && std::is_base_of_v<Error, Unsupported> &&
              std::is_base_of_v<Error, OutOfMemory> && std::is_base_of_v<Error, CudaError> &&
              std::is_base_of_v<std::runtime_error, Error>);

constexpr float kStatic[2] = {};
static_assert(bhsd(kStatic, 2, 3, 5, 7).stride[0] == 105 && bshd(kStatic, 2, 3, 5, 7).stride[2] == 21,
              "tensors can be made at compile time");

TEST(Api, Names) {
  const std::pair<Version, const char*> versions[] = {{V0, "V0"}, {V1, "V1"},   {V2, "V2"},    {V3, "V3"},
                                                      {V4, "V4"}, {V5, "V5"},   {V6, "V6"},    {V7, "V7"},
                                                      {V8, "V8"}, {CPU, "CPU"}, {Auto, "Auto"}};
  for (const auto& [version, name] : versions) EXPECT_STREQ(name_of(version), name);
  EXPECT_STREQ(name_of(static_cast<Version>(55)), "unknown version");
  EXPECT_STREQ(name_of(Dtype::float32), "float32");
  EXPECT_STREQ(name_of(Dtype::float16), "float16");
  EXPECT_STREQ(name_of(Dtype::bfloat16), "bfloat16");
  EXPECT_STREQ(name_of(Dtype::none), "none");
}

// ---- tensors
// --------------------------------------------------------------------------------------------------

constexpr std::int64_t kB = 2, kH = 3, kS = 5, kD = 7;

template <class T>
T* address(const Tensor<T>& t, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) {
  return t.data + b * t.stride[0] + h * t.stride[1] + s * t.stride[2] + d * t.stride[3];
}

// Every element's address, against the layout written out; sizes always in logical order.
template <class Want>
void expect_layout(const Tensor<float>& t, const float* base, Want want) {
  EXPECT_EQ(t.size[0], kB);
  EXPECT_EQ(t.size[1], kH);
  EXPECT_EQ(t.size[2], kS);
  EXPECT_EQ(t.size[3], kD);
  for (std::int64_t b = 0; b < kB; ++b)
    for (std::int64_t h = 0; h < kH; ++h)
      for (std::int64_t s = 0; s < kS; ++s)
        for (std::int64_t d = 0; d < kD; ++d) ASSERT_EQ(address(t, b, h, s, d) - base, want(b, h, s, d));
}

TEST(Tensors, Layouts) {
  std::vector<float> memory(4096);
  float* p = memory.data();
  expect_layout(bhsd(p, kB, kH, kS, kD), p,
                [](auto b, auto h, auto s, auto d) { return ((b * kH + h) * kS + s) * kD + d; });
  expect_layout(bshd(p, kB, kH, kS, kD), p,
                [](auto b, auto h, auto s, auto d) { return ((b * kS + s) * kH + h) * kD + d; });
  expect_layout(strided(p, kB, kH, kS, kD, 500, 100, 11), p,
                [](auto b, auto h, auto s, auto d) { return 500 * b + 100 * h + 11 * s + d; });
  constexpr std::int64_t total = 9;
  for (const std::int64_t first : {0, 3, 6}) {
    expect_layout(packed_heads(p, kB, kS, total, kD, first, kH), p, [&](auto b, auto h, auto s, auto d) {
      return ((b * kS + s) * total + first + h) * kD + d;
    });
  }
}

TEST(Tensors, PackedHeadsOfNullIsNull) {
  EXPECT_EQ(packed_heads(static_cast<float*>(nullptr), 0, 5, 9, 8, 3, 3).data, nullptr);
}

TEST(Tensors, ReadOnlyViewKeepsEverything) {
  std::vector<float> memory(4096);
  const Tensor<float> t = strided(memory.data(), kB, kH, kS, kD, 500, 100, 11);
  const Tensor<const float> c = t;
  EXPECT_EQ(c.data, t.data);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(c.size[i], t.size[i]);
    EXPECT_EQ(c.stride[i], t.stride[i]);
  }
}

// ---- 16-bit types
// ---------------------------------------------------------------------------------------------

TEST(Types, HalfRoundTripsEveryBitPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    half h;
    h.bits = static_cast<std::uint16_t>(bits);
    const float x = static_cast<float>(h);
    const bool nan = (bits & 0x7c00u) == 0x7c00u && (bits & 0x3ffu) != 0;
    ASSERT_EQ(std::isnan(x), nan) << bits;
    ASSERT_TRUE(nan || half(x).bits == bits) << bits;
    bfloat16 b;
    b.bits = static_cast<std::uint16_t>(bits);
    const float y = static_cast<float>(b);
    const bfloat16 again(y);
    ASSERT_TRUE(std::isnan(y) ? std::isnan(static_cast<float>(again)) : again.bits == bits) << bits;
  }
}

TEST(Types, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(half(2049.0f)), 2048.0f);
  EXPECT_EQ(static_cast<float>(half(2051.0f)), 2052.0f);
  EXPECT_EQ(static_cast<float>(half(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(half(65520.0f))));
  EXPECT_EQ(static_cast<float>(half(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(static_cast<float>(half(0x1p-25f)), 0.0f);
  EXPECT_EQ(static_cast<float>(half(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(static_cast<float>(bfloat16(257.0f)), 256.0f);
  EXPECT_EQ(static_cast<float>(bfloat16(259.0f)), 260.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(3.4e38f))));
}

#if defined(FLASHATTN_HAS_CUDA_TYPES)
TEST(Types, AgreeWithCudas) {
  for (std::uint32_t i = 0; i < 0x10000u; ++i) {
    // Floats spread over all exponents, with every kind of tail.
    const float x = detail::float_of(i * 65537u + (i << 13));
    if (std::isnan(x)) continue;
    const __half theirs = __float2half_rn(x);
    const __nv_bfloat16 their_b = __float2bfloat16_rn(x);
    std::uint16_t bits;
    std::memcpy(&bits, &theirs, 2);
    ASSERT_EQ(half(x).bits, bits) << x;
    std::memcpy(&bits, &their_b, 2);
    ASSERT_EQ(bfloat16(x).bits, bits) << x;
  }
}
#endif

// ---- forward
// --------------------------------------------------------------------------------------------------

constexpr std::int64_t kM = 9, kN = 13, kHk = 1, kDv = 5;

/// Memory of a call with one element type: O is 2 everywhere, LSE = ln 13 + 7/8 x scale.
template <class T, class TOut = T>
struct Call {
  std::vector<T> q, k, v;
  std::vector<TOut> out;
  std::vector<float> lse;
  ForwardArgs<T, TOut> args;

  Call()
      : q(kB * kH * kM * kD, T(0.5f)),
        k(kB * kHk * kN * kD, T(0.25f)),
        v(kB * kHk * kN * kDv, T(2.0f)),
        out(kB * kH * kM * kDv, TOut(-1.0f)),
        lse(kB * kH * kM, -1.0f) {
    args.q = bhsd(q.data(), kB, kH, kM, kD);
    args.k = bhsd(k.data(), kB, kHk, kN, kD);
    args.v = bshd(v.data(), kB, kHk, kN, kDv);
    args.out = bshd(out.data(), kB, kH, kM, kDv);
    args.lse = lse.data();
  }
  void reset() {
    std::fill(out.begin(), out.end(), TOut(-1.0f));
    std::fill(lse.begin(), lse.end(), -1.0f);
  }
  // What the call left, with the count of visible keys of row i.
  template <class Count>
  void expect(double scale, Count count) const {
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(static_cast<float>(out[i]), 2.0f) << "element " << i;
    for (std::size_t r = 0; r < lse.size(); ++r) {
      const std::int64_t n = count(static_cast<std::int64_t>(r) % kM);
      ASSERT_NEAR(lse[r], std::log(static_cast<double>(n)) + 0.875 * scale, 1e-5) << "row " << r;
    }
  }
};

template <class Pair>
class Forms : public testing::Test {};

template <class A, class B>
struct Types {
  using In = A;
  using Out = B;
};
using AllTypes =
    testing::Types<Types<float, float>, Types<half, half>, Types<bfloat16, bfloat16>, Types<half, float>,
                   Types<bfloat16, float>, Types<float, half>, Types<bfloat16, half>
#if defined(FLASHATTN_HAS_CUDA_TYPES)
                   ,
                   Types<__half, __half>, Types<__nv_bfloat16, __nv_bfloat16>, Types<__half, float>,
                   Types<__half, half>
#endif
                   >;
TYPED_TEST_SUITE(Forms, AllTypes);

TYPED_TEST(Forms, EveryOverload) {
  using T = typename TypeParam::In;
  using TOut = typename TypeParam::Out;
  const auto all = [](std::int64_t) { return kN; };
  const double scale = 1 / std::sqrt(static_cast<double>(kD));
  Call<T, TOut> call;

  forward(call.args);
  call.expect(scale, all);
  call.reset();
  forward(call.args, nullptr);
  call.expect(scale, all);
  call.reset();
  forward<CPU>(call.args);
  call.expect(scale, all);
  call.reset();
  forward<CPU, T>(call.args, nullptr);
  call.expect(scale, all);
  call.reset();
  forward<Auto, T, TOut>(call.args);
  call.expect(scale, all);
  call.reset();
  forward(CPU, call.args);
  call.expect(scale, all);
  call.reset();
  forward(Auto, call.args, nullptr);
  call.expect(scale, all);

  // Mask and scale reach the call.
  call.reset();
  call.args.mask = Mask::causal();
  call.args.scale = -2.0f;
  forward(call.args);
  call.expect(-2, [](std::int64_t i) { return i + kN - kM + 1; });
  call.args.mask = Mask::causal_top_left();
  call.args.scale = 0.0f;
  call.args.threads = 2;
  forward(call.args);
  call.expect(0, [](std::int64_t i) { return i + 1; });
  call.args.mask = Mask::window(2, 1);
  call.args.scale.reset();
  forward(call.args);
  call.expect(scale, [](std::int64_t i) { return std::min(kN - 1, i + 4 + 1) - (i + 2) + 1; });

  // Without LSE.
  call.reset();
  call.args.lse = nullptr;
  forward(call.args);
  for (const float l : call.lse) ASSERT_EQ(l, -1.0f);
  for (const TOut o : call.out) ASSERT_EQ(static_cast<float>(o), 2.0f);
}

TEST(Api, PackedSlices) {
  // q, k, v are slices of one projection [B, S, H + 2 Hk, D].
  const std::int64_t total = kH + 2 * kHk;
  std::vector<float> qkv(kB * kS * total * kD, 0.5f), out(kB * kS * kH * kD, -1.0f);
  for (std::int64_t i = 0; i < kB * kS; ++i)
    for (std::int64_t d = 0; d < kD; ++d)
      qkv[static_cast<std::size_t>((i * total + kH + kHk) * kD + d)] = 3.0f;
  ForwardArgs<float> args;
  args.q = packed_heads(qkv.data(), kB, kS, total, kD, 0, kH);
  args.k = packed_heads(qkv.data(), kB, kS, total, kD, kH, kHk);
  args.v = packed_heads(qkv.data(), kB, kS, total, kD, kH + kHk, kHk);
  args.out = bshd(out.data(), kB, kH, kS, kD);
  forward(args);
  for (const float o : out) ASSERT_EQ(o, 3.0f);
}

TEST(Api, WorkspaceIsTheCallers) {
  Call<float> call;
  call.args.threads = 1;
  const std::size_t bytes = forward_workspace_size(call.args);
  EXPECT_EQ(forward_workspace_size(call.args, CPU), bytes);
  ASSERT_GT(bytes, 0u);
  struct alignas(256) Line {
    unsigned char bytes[256];
  };
  std::vector<Line> memory(bytes / 256 + 1);
  call.args.workspace = memory.data();
  call.args.workspace_size = bytes;
  forward(call.args);
  call.expect(1 / std::sqrt(7.0), [](std::int64_t) { return kN; });
  call.args.workspace_size = bytes - 1;
  EXPECT_THROW(forward(call.args), InvalidArgument);
}

TEST(Api, PrepareRuns) {
  Call<float> call;
  prepare(call.args);
  prepare(call.args, CPU);
  EXPECT_EQ(call.out[0], -1.0f);
}

// ---- explain
// --------------------------------------------------------------------------------------------------

TEST(Api, Explanation) {
  Call<half, float> call;
  call.args.threads = 3;
  const Explanation e = explain(call.args);
  EXPECT_TRUE(e.runs);
  EXPECT_EQ(e.version, CPU);
  EXPECT_EQ(e.placement, Placement::host);
  EXPECT_EQ(e.device, -1);
  EXPECT_EQ(e.threads, 3);
  EXPECT_EQ(e.workspace_size, forward_workspace_size(call.args));
  EXPECT_EQ(e.kernel, "cpu_fp16");
  for (const char* part :
       {"float16", "B2", "H3/1", "M9", "N13", "D7/5", "out float32", "runs: CPU (cpu_fp16)"}) {
    EXPECT_NE(e.text.find(part), std::string::npos) << part << " is not in:\n" << e.text;
  }
  EXPECT_EQ(e.text.find('\0'), std::string::npos);
  EXPECT_EQ(static_cast<float>(call.out[0]), -1.0f);
}

// ---- exceptions
// -----------------------------------------------------------------------------------------------

template <class E, class F>
void expect_throws(fa_status status, const std::string& part, F f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; wanted: " << part;
  } catch (const E& e) {
    EXPECT_EQ(e.status(), status);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_STREQ(e.what(), fa_last_error());
  }
}

TEST(Api, InvalidArgumentNamesIt) {
  Call<float> call;
  call.args.k.size[1] = call.args.v.size[1] = 2;
  const std::string text = "k heads = 2 must divide q heads = 3";
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, text, [&] { forward(call.args); });
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, text, [&] { forward(CPU, call.args); });
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, text, [&] { forward_workspace_size(call.args); });
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, text, [&] { prepare(call.args); });
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, text, [&] { explain(call.args); });
  EXPECT_EQ(call.out[0], -1.0f);
}

TEST(Api, UnsupportedNamesTheRow) {
  Call<float> call;
  for (const Version version : {V0, V5, V8}) {
    expect_throws<Unsupported>(FA_UNSUPPORTED, name_of(version), [&] { forward(version, call.args); });
  }
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, "version = 55",
                                 [&] { forward(static_cast<Version>(55), call.args); });
}

TEST(Api, StatusesBecomeTheirExceptions) {
  EXPECT_NO_THROW(detail::check(FA_OK));
  EXPECT_THROW(detail::check(FA_INVALID_ARGUMENT), InvalidArgument);
  EXPECT_THROW(detail::check(FA_UNSUPPORTED), Unsupported);
  EXPECT_THROW(detail::check(FA_OUT_OF_MEMORY), OutOfMemory);
  EXPECT_THROW(detail::check(FA_CUDA_ERROR), CudaError);
  for (const fa_status status : {static_cast<fa_status>(FA_INTERNAL_ERROR), fa_status{77}}) {
    try {
      detail::check(status);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status);
    }
  }
}

TEST(Api, StreamOnTheHostIsRefused) {
  Call<float> call;
  int not_a_stream = 0;
  expect_throws<InvalidArgument>(FA_INVALID_ARGUMENT, "stream must be null",
                                 [&] { forward(call.args, reinterpret_cast<Stream>(&not_a_stream)); });
}

TEST(Api, UnsetArgumentsAreAnError) {
  EXPECT_THROW(forward(ForwardArgs<float>{}), InvalidArgument);
}

}  // namespace
}  // namespace fa::test
