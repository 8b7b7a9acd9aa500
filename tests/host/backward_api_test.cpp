/// The doors of backward: C++ arguments, overloads and exceptions, the C interface's answers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::test {
namespace {

static_assert(exists<CPU, float, Pass::backward> && exists<CPU, half, Pass::backward> &&
              exists<CPU, bfloat16, Pass::backward>);
static_assert(exists<V2, float, Pass::backward> && exists<V2, half, Pass::backward> &&
              exists<V2, bfloat16, Pass::backward>);
static_assert(exists<Auto, float, Pass::backward> && !exists<V0, float, Pass::backward> &&
              !exists<V7, half, Pass::backward> && !exists<CPU, double, Pass::backward>);
#if defined(FLASHATTN_HAS_CUDA_TYPES)
static_assert(exists<V2, __half, Pass::backward> && exists<CPU, __nv_bfloat16, Pass::backward>);
#endif

constexpr std::int64_t kB = 2, kH = 4, kHk = 2, kM = 9, kN = 13, kD = 7, kDv = 5;

/// Q = 0 and dO = 1: every weight is 1 / 13, dV = 2 heads x 9 rows / 13, dQ = dK = 0 since V is constant.
template <class T, class TGrad = T>
struct Call {
  std::vector<T> q, k, v, out, dout;
  std::vector<TGrad> dq, dk, dv;
  std::vector<float> lse;
  BackwardArgs<T, TGrad> args;

  Call()
      : q(kB * kH * kM * kD, T(0.0f)),
        k(kB * kHk * kN * kD, T(0.25f)),
        v(kB * kHk * kN * kDv, T(2.0f)),
        out(kB * kH * kM * kDv, T(2.0f)),
        dout(out.size(), T(1.0f)),
        dq(q.size(), TGrad(-1.0f)),
        dk(k.size(), TGrad(-1.0f)),
        dv(v.size(), TGrad(-1.0f)),
        lse(kB * kH * kM, std::log(13.0f)) {
    args.q = bhsd(q.data(), kB, kH, kM, kD);
    args.k = bhsd(k.data(), kB, kHk, kN, kD);
    args.v = bshd(v.data(), kB, kHk, kN, kDv);
    args.out = bshd(out.data(), kB, kH, kM, kDv);
    args.dout = bhsd(dout.data(), kB, kH, kM, kDv);
    args.dq = bhsd(dq.data(), kB, kH, kM, kD);
    args.dk = bshd(dk.data(), kB, kHk, kN, kD);
    args.dv = bhsd(dv.data(), kB, kHk, kN, kDv);
    args.lse = lse.data();
  }
  void reset() {
    for (std::vector<TGrad>* values : {&dq, &dk, &dv}) values->assign(values->size(), TGrad(-1.0f));
  }
  void expect(float want = 18.0f / 13.0f) const {
    for (const TGrad x : dq) ASSERT_NEAR(static_cast<float>(x), 0.0f, 1e-5f);
    for (const TGrad x : dk) ASSERT_NEAR(static_cast<float>(x), 0.0f, 1e-5f);
    for (const TGrad x : dv) ASSERT_NEAR(static_cast<float>(x), want, 0.005f);
  }
};

template <class Pair>
class BackwardForms : public testing::Test {};

template <class A, class B>
struct Types {
  using In = A;
  using Gradient = B;
};
using AllTypes = testing::Types<Types<float, float>, Types<half, half>, Types<bfloat16, bfloat16>,
                                Types<half, float>, Types<bfloat16, float>, Types<float, half>
#if defined(FLASHATTN_HAS_CUDA_TYPES)
                                ,
                                Types<__half, __half>, Types<__nv_bfloat16, float>
#endif
                                >;
TYPED_TEST_SUITE(BackwardForms, AllTypes);

TYPED_TEST(BackwardForms, EveryOverload) {
  using T = typename TypeParam::In;
  using TGrad = typename TypeParam::Gradient;
  Call<T, TGrad> call;
  backward(call.args);
  call.expect();
  call.reset();
  backward(call.args, nullptr);
  call.expect();
  call.reset();
  backward<CPU>(call.args);
  call.expect();
  call.reset();
  backward<CPU, T>(call.args, nullptr);
  call.expect();
  call.reset();
  backward<Auto, T, TGrad>(call.args);
  call.expect();
  call.reset();
  backward(CPU, call.args);
  call.expect();
  call.reset();
  backward(Auto, call.args, nullptr);
  call.expect();

  // Mask, scale, threads and the flag reach the call. A window of one key: its weight is 1, and so is that of
  // row i at key i + 4; keys 0 to 3 have none.
  call.reset();
  call.args.mask = Mask::window(0, 0);
  call.args.scale = -2.0f;
  call.args.threads = 2;
  call.args.deterministic = true;
  call.lse.assign(call.lse.size(), 0.0f);
  backward(call.args);
  for (std::size_t i = 0; i < call.dv.size(); ++i) {
    const std::size_t key = i / kDv % kN;
    ASSERT_NEAR(static_cast<float>(call.dv[i]), key < 4 ? 0.0f : 2.0f, 1e-5f) << "key " << key;
  }
}

TEST(BackwardApi, WorkspaceIsTheCallers) {
  Call<float> call;
  call.args.threads = 1;
  const std::size_t bytes = backward_workspace_size(call.args);
  EXPECT_EQ(backward_workspace_size(call.args, CPU), bytes);
  ASSERT_GT(bytes, 0u);
  struct alignas(256) Line {
    unsigned char bytes[256];
  };
  std::vector<Line> memory(bytes / 256 + 1);
  call.args.workspace = memory.data();
  call.args.workspace_size = bytes;
  backward(call.args);
  call.expect();
  call.args.workspace_size = bytes - 1;
  EXPECT_THROW(backward(call.args), InvalidArgument);
}

// Linear in both lengths: twice M and N need at most twice the bytes.
TEST(BackwardApi, WorkspaceIsLinearInTheLengths) {
  std::vector<float> memory(1);
  const auto bytes = [&](std::int64_t S) {
    BackwardArgs<float> args;
    // Never read: the query looks at no element. Gradients lie apart.
    float* const p = reinterpret_cast<float*>(std::uintptr_t{1} << 20);
    float* const far = reinterpret_cast<float*>(std::uintptr_t{1} << 40);
    args.q = args.k = args.v = args.out = args.dout = bhsd(p, 1, 1, S, 64);
    args.dq = bhsd(far, 1, 1, S, 64);
    args.dk = bhsd(far + S * 64, 1, 1, S, 64);
    args.dv = bhsd(far + 2 * S * 64, 1, 1, S, 64);
    args.lse = p;
    args.threads = 1;
    return backward_workspace_size(args, CPU);
  };
  EXPECT_LE(bytes(8192), 2 * bytes(4096));
  EXPECT_LE(bytes(1 << 20), std::size_t{8} << 20);
}

TEST(BackwardApi, PrepareRuns) {
  Call<float> call;
  prepare(call.args);
  prepare(call.args, CPU);
  EXPECT_EQ(call.dq[0], -1.0f);
}

TEST(BackwardApi, Explanation) {
  Call<half, float> call;
  call.args.threads = 3;
  call.args.deterministic = true;
  call.args.mask = Mask::causal();
  const Explanation e = explain(call.args);
  EXPECT_TRUE(e.runs);
  EXPECT_EQ(e.version, CPU);
  EXPECT_EQ(e.placement, Placement::host);
  EXPECT_EQ(e.device, -1);
  EXPECT_EQ(e.threads, 3);
  EXPECT_EQ(e.workspace_size, backward_workspace_size(call.args));
  EXPECT_EQ(e.kernel, "cpu_backward_fp16");
  EXPECT_EQ(e.text.substr(0, e.text.find('\n')),
            "float16 B2 H4/2 M9 N13 D7/5 causal, gradients float32, backward, deterministic, in host memory");
  EXPECT_NE(e.text.find("runs: CPU (cpu_backward_fp16), at most 3 threads"), std::string::npos) << e.text;
  EXPECT_EQ(static_cast<float>(call.dq[0]), -1.0f);

  call.args.q.size[2] = call.args.out.size[2] = call.args.dout.size[2] = call.args.dq.size[2] = 0;
  EXPECT_NE(explain(call.args).text.find("runs: CPU"), std::string::npos) << "dk and dv become 0";
  call.args.k.size[2] = call.args.v.size[2] = call.args.dk.size[2] = call.args.dv.size[2] = 0;
  EXPECT_NE(explain(call.args).text.find("nothing to do: no gradient has elements"), std::string::npos);
  EXPECT_NE(explain(call.args, V1).text.find("V1 backward does not exist for float16"), std::string::npos);
}

template <class E, class F>
void expect_throws(const std::string& part, F f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; wanted: " << part;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(BackwardApi, ErrorsAreTyped) {
  Call<float> call;
  call.args.lse = nullptr;
  const std::string text = "lse is null but q has 72 rows";
  expect_throws<InvalidArgument>(text, [&] { backward(call.args); });
  expect_throws<InvalidArgument>(text, [&] { backward(CPU, call.args); });
  expect_throws<InvalidArgument>(text, [&] { backward_workspace_size(call.args); });
  expect_throws<InvalidArgument>(text, [&] { prepare(call.args); });
  expect_throws<InvalidArgument>(text, [&] { explain(call.args); });
  call.args.lse = call.lse.data();
  expect_throws<Unsupported>("V0 backward does not exist for float32", [&] { backward(V0, call.args); });
  expect_throws<Unsupported>("V2 (v2_backward_fp32): ", [&] { backward(V2, call.args); });
  expect_throws<InvalidArgument>("version = 55", [&] { backward(static_cast<Version>(55), call.args); });
  EXPECT_THROW(backward(BackwardArgs<float>{}), InvalidArgument);
  EXPECT_EQ(call.dq[0], -1.0f);
}

// The rows of backward are there in every build, after those of forward.
TEST(BackwardApi, RowsOfTheTable) {
  std::map<std::string, fa_kernel_info> rows;
  fa_pass last = FA_PASS_FORWARD;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(fa_kernel_info_get(i, &info), FA_OK);
    EXPECT_GE(info.pass, last) << "rows of forward come first";
    last = info.pass;
    rows[info.name] = info;
  }
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    for (const std::string name : {"v2_backward_", "cpu_backward_"}) {
      ASSERT_EQ(rows.count(name + dtype), 1u) << name << dtype;
      const fa_kernel_info& row = rows[name + dtype];
      EXPECT_EQ(row.pass, FA_PASS_BACKWARD);
      EXPECT_EQ(row.version, name[0] == 'v' ? FA_V2 : FA_CPU);
      EXPECT_EQ(row.stand_in, nullptr);
      if (row.version == FA_CPU) {
        EXPECT_EQ(row.built, 1);
      }
    }
  }
}

TEST(BackwardApi, SizeQueryWantsSomewhereToWrite) {
  fa_backward_args args;
  ASSERT_EQ(fa_backward_args_init(&args, sizeof args), FA_OK);
  EXPECT_EQ(fa_backward_workspace_size(&args, FA_AUTO, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_STREQ(fa_last_error(), "bytes is null");
}

}  // namespace
}  // namespace fa::test
