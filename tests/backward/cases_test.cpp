/// The failure cases of docs/cases.md that the dense backward call reaches, by their ids. Sizes that only a
/// device computes in reasonable time are cut on the host; what the case is about is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tests/backward/rows.hpp"

namespace fa::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kSecondsPerCase = 30;

std::string shape(std::int64_t B, std::int64_t H, std::int64_t Hk, std::int64_t M, std::int64_t N,
                  std::int64_t D) {
  return "B" + std::to_string(B) + " H" + std::to_string(H) + "/" + std::to_string(Hk) + " M" +
         std::to_string(M) + " N" + std::to_string(N) + " D" + std::to_string(D);
}

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class BackwardCases : public RowSuite {
 protected:
  /// Bytes of workspace that the row wants for the call; nothing where it rejects it.
  std::optional<std::size_t> workspace_size(const fa_backward_args& args) const {
    std::size_t bytes = 0;
    const fa_status status =
        fa_backward_workspace_size(&args, static_cast<fa_version>(row().version), &bytes);
    if (status == FA_OK) return bytes;
    EXPECT_TRUE(status == FA_UNSUPPORTED && !on_host()) << fa_last_error();
    return std::nullopt;
  }
  /// 3 times the problem's normal q, k and v.
  Inputs tripled(const Problem& p) const {
    Inputs inputs = make_inputs(p);
    for (std::vector<float>* x : {&inputs.q, &inputs.k, &inputs.v}) {
      for (float& value : *x) value = round_to(p.dtype, 3 * value);
    }
    return inputs;
  }
};

// ---- P01: causal alignment where M and N differ --------------------------------------------------------

TEST_P(BackwardCases, P01_CausalMoreQueriesThanKeys) {
  const Problem p = problem(on_host() ? "H2 M512 N256 D64 causal" : "H2 M2048 N1024 D128 causal");
  const Watchdog watchdog(kSecondsPerCase * 4, to_string(p));
  const BackwardInputs inputs = make_backward_inputs(p);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects the problem";
  EXPECT_EQ(check_backward(p, inputs, *got), "");
  for (std::int64_t r = 0; r < p.H * p.M; ++r) {
    if (r % p.M >= p.M / 2) continue;
    for (std::int64_t d = 0; d < p.D; ++d) ASSERT_EQ(got->dq[index(r * p.D + d)], 0.0f) << "row " << r;
  }
}

TEST_P(BackwardCases, P01_BothAlignmentsBothWays) {
  for (const char* sizes :
       {"M300 N100", "M100 N300", "M65 N64", "M64 N65", "M1 N129", "M129 N1", "M3 N128"}) {
    for (const char* mask : {"causal", "causal-top-left"}) {
      check_row(problem(std::string("H2/1 D64 ") + sizes + " " + mask), row());
    }
  }
}

// ---- P02: rows that see one key, or none ---------------------------------------------------------------

TEST_P(BackwardCases, P02_OneKeyHasNoGradientOfItsScore) {
  for (const char* line : {"H1 M1 N1 D16", "H1 M1 N1 D16 causal", "B3 H4/2 M1 N1 D32 causal",
                           "H1 M76 N1 D32 causal", "H1 M34 N1 D32", "B3 H4/2 M1 N1 D64"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    BackwardInputs inputs = make_backward_inputs(p, tripled(p));
    std::fill(inputs.dout.begin(), inputs.dout.end(), 1.0f);
    const auto got = run_row(p, inputs, row());
    if (!got) continue;
    EXPECT_EQ(check_backward(p, inputs, *got), "");
    // P = 1 up to the rounding of S and LSE, dP - Delta = 0 up to that of two sums of Dv terms.
    for (const float x : got->dq) ASSERT_NEAR(x, 0.0f, 1e-3f);
    for (const float x : got->dk) ASSERT_NEAR(x, 0.0f, 1e-3f);
    std::int64_t see_it = 0;  // rows that see the key, of all heads that share it
    for (std::int64_t i = 0; i < p.M; ++i) see_it += visible_keys(p, i).first != visible_keys(p, i).last;
    const double want = static_cast<double>(see_it * (p.H / p.Hk));
    for (const float x : got->dv) ASSERT_NEAR(x, want, want * 0.005);
  }
}

// ---- P05: tile tails, and calls that never end ---------------------------------------------------------

TEST_P(BackwardCases, P05_ReportedTails) {
  for (const char* line :
       {"H8 S192 D16", "H8 S192 D16 causal", "H1 S250 D128", "H1 S252 D128", "H1 S250 D128 causal"}) {
    const Watchdog watchdog(kSecondsPerCase, line);
    check_row(problem(line), row());
  }
}

TEST_P(BackwardCases, P05_EveryTail) {
  constexpr std::int64_t kSizes[] = {1,   2,   7,   15,  17,  63,  64,  65,  127,
                                     128, 129, 191, 192, 193, 250, 255, 256, 257};
  int taken = 0;
  for (const bool causal : {false, true}) {
    for (const std::int64_t M : kSizes) {
      for (const std::int64_t N : kSizes) {
        const std::string line = shape(1, 1, 1, M, N, on_host() ? 16 : 64) + (causal ? " causal" : "") +
                                 " seed " + std::to_string(M * 1000 + N);
        const Watchdog watchdog(kSecondsPerCase, line);
        taken += check_row(problem(line), row());
      }
    }
  }
  EXPECT_GT(taken, 0);
}

// ---- P06: head dimension -------------------------------------------------------------------------------

TEST_P(BackwardCases, P06_EveryHeadSize) {
  for (std::int64_t D = 1; D <= 257; ++D) {
    const Watchdog watchdog(kSecondsPerCase, "D" + std::to_string(D));
    check_row(problem(shape(1, 2, 1, 19, 37, D) + " causal seed " + std::to_string(D)), row());
    check_row(problem(shape(1, 1, 1, 5, 9, D) + " bshd seed " + std::to_string(D + 1)), row());
  }
}

TEST_P(BackwardCases, P06_ReportedHeadSizes) {
  for (const char* head : {"D72", "D104", "D63"}) {
    check_row(problem(std::string(on_host() ? "H2 S200 " : "H8 S512 ") + head), row());
  }
}

// ---- P07: integer width --------------------------------------------------------------------------------

// With one query and one key a head, O = V, dV = dO, dQ = dK = 0 up to rounding, whatever the scores.
TEST_P(BackwardCases, P07_ManyShortBatches) {
  Problem p = problem("B8300 H16 M1 N1 D128 seed 5");
  if (on_host()) p.B = 300;
  BackwardInputs inputs;
  inputs.in = make_inputs(p);
  inputs.out = inputs.in.v;
  inputs.dout = inputs.in.k;
  for (std::int64_t r = 0; r < p.B * p.H; ++r) {
    double dot = 0;
    for (std::int64_t d = 0; d < p.D; ++d) {
      dot += static_cast<double>(inputs.in.q[index(r * p.D + d)]) *
             static_cast<double>(inputs.in.k[index(r * p.D + d)]);
    }
    inputs.lse.push_back(static_cast<float>(dot / std::sqrt(static_cast<double>(p.D))));
  }
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects the problem";
  for (std::size_t i = 0; i < inputs.dout.size(); ++i) {
    const float want = inputs.dout[i];
    ASSERT_NEAR(got->dv[i], want, 1e-5f + 0.005f * std::fabs(want) * (p.dtype != Dtype::float32)) << i;
    ASSERT_NEAR(got->dq[i], 0.0f, 1e-4f) << i;
    ASSERT_NEAR(got->dk[i], 0.0f, 1e-4f) << i;
  }
}

// Batch, head or row stride of 2^30 elements for one tensor at a time: the bits of the run on compact copies.
TEST_P(BackwardCases, P07_FarStrides) {
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  for (int dim = 0; dim < 3; ++dim) {
    Problem p = problem("B2 H2 M3 N3 D64 causal deterministic");
    (dim == 0 ? p.B : dim == 1 ? p.H : p.M) = 5;
    p.Hk = p.H;
    p.N = p.M;
    const BackwardInputs inputs = make_backward_inputs(p);
    const Arrays compact(p, inputs, row().side);
    const fa_status status = run_args(compact.args(p), row());
    if (status == FA_UNSUPPORTED && !on_host()) GTEST_SKIP() << fa_last_error();
    ASSERT_EQ(status, FA_OK) << fa_last_error();
    for (int who = 0; who < 8; ++who) {
      SCOPED_TRACE("tensor " + std::to_string(who) + ", dimension " + std::to_string(dim));
      try {
        Arrays far(p, inputs, row().side);
        Array* const all[] = {&far.q, &far.k, &far.v, &far.out, &far.dout, &far.dq, &far.dk, &far.dv};
        const fa_tensor was = all[who]->tensor();
        std::int64_t stride[3] = {was.stride[0], was.stride[1], was.stride[2]};
        stride[dim] = kFar;
        if (dim == 1) stride[0] = was.size[2] * was.size[3];  // batches lie between the far heads
        if (dim == 2) stride[0] = 2 * p.D, stride[1] = p.D;
        const std::vector<float> values = all[who]->get();
        *all[who] = Array(row().side, p.dtype, was.size, stride);
        if (who < 5) all[who]->set(values);
        ASSERT_EQ(run_args(far.args(p), row()), FA_OK) << fa_last_error();
        EXPECT_TRUE(far.dq.bits() == compact.dq.bits());
        EXPECT_TRUE(far.dk.bits() == compact.dk.bits());
        EXPECT_TRUE(far.dv.bits() == compact.dv.bits());
      } catch (const std::bad_alloc&) {
        GTEST_SKIP() << "skipped: no room for 5 x 2^30 elements of address space";
      }
    }
  }
}

// Q = K = 0: every weight is 1 / N, dV_j = sum of dO / N, dQ = dK = 0 exactly.
TEST_P(BackwardCases, P07_ManyKeys) {
  constexpr std::int64_t kKeys = 33728;
  const Problem p = problem(shape(1, 1, 1, on_host() ? 5 : kKeys, kKeys, 128));
  BackwardInputs inputs;
  inputs.in = make_inputs(p);
  std::fill(inputs.in.q.begin(), inputs.in.q.end(), 0.0f);
  std::fill(inputs.in.k.begin(), inputs.in.k.end(), 0.0f);
  std::vector<double> mean(index(p.D), 0.0), sum(index(p.D), 0.0);
  for (std::size_t i = 0; i < inputs.in.v.size(); ++i) {
    mean[i % index(p.D)] += static_cast<double>(inputs.in.v[i]) / static_cast<double>(kKeys);
  }
  inputs.dout.resize(inputs.in.q.size());
  for (std::size_t i = 0; i < inputs.dout.size(); ++i) {
    inputs.dout[i] = inputs.in.v[i];
    inputs.out.push_back(round_to(p.dtype, static_cast<float>(mean[i % index(p.D)])));
    sum[i % index(p.D)] += static_cast<double>(inputs.dout[i]) / static_cast<double>(kKeys);
  }
  inputs.lse.assign(index(p.M), static_cast<float>(std::log(static_cast<double>(kKeys))));
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects the problem";
  for (const float x : got->dq) ASSERT_EQ(x, 0.0f);
  for (const float x : got->dk) ASSERT_EQ(x, 0.0f);
  for (std::size_t i = 0; i < got->dv.size(); ++i) {
    const double want = sum[i % index(p.D)];
    // Rounded to the type once, and where P is rounded too, by one relative step for every key alike.
    const double step = p.dtype == Dtype::float32 ? 0 : p.dtype == Dtype::float16 ? 0x1p-9 : 0x1p-6;
    ASSERT_NEAR(got->dv[i], want, 1e-5 + step * std::max(std::fabs(want), 1e-2)) << i;
  }
}

// ---- P09: strides of inputs and gradients --------------------------------------------------------------

TEST_P(BackwardCases, P09_EveryTensorItsOwnStrides) {
  const Problem p = problem("B2 H4/2 M33 N47 D40 causal deterministic");
  const BackwardInputs inputs = make_backward_inputs(p);
  const Arrays compact(p, inputs, row().side);
  const fa_status status = run_args(compact.args(p), row());
  if (status == FA_UNSUPPORTED && !on_host()) GTEST_SKIP() << fa_last_error();
  ASSERT_EQ(status, FA_OK) << fa_last_error();
  const char* const names[] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};
  for (int who = 0; who < 9; ++who) {
    for (int order = 0; order < 4; ++order) {
      SCOPED_TRACE(std::string(who < 8 ? names[who] : "all") + ", order " + std::to_string(order));
      Arrays strided(p, inputs, row().side);
      Array* const all[] = {&strided.q,    &strided.k,  &strided.v,  &strided.out,
                            &strided.dout, &strided.dq, &strided.dk, &strided.dv};
      for (int t = 0; t < 8; ++t) {
        if (who != t && who != 8) continue;
        const fa_tensor was = all[t]->tensor();
        const std::int64_t B = was.size[0], H = was.size[1], S = was.size[2], D = was.size[3];
        // [B, S, H, D], [S, H, B, D], [H, B, S, D] and rows with a gap that differs by tensor.
        const std::int64_t orders[4][3] = {{S * H * D, D, H * D},
                                           {D, B * D, H * B * D},
                                           {S * D, B * S * D, D},
                                           {H * S * (D + t + 1), S * (D + t + 1), D + t + 1}};
        const std::vector<float> values = all[t]->get();
        *all[t] = Array(row().side, p.dtype, was.size, orders[order]);
        all[t]->fill(0xff);
        if (t < 5) all[t]->set(values);
      }
      ASSERT_EQ(run_args(strided.args(p), row()), FA_OK) << fa_last_error();
      EXPECT_TRUE(strided.dq.bits() == compact.dq.bits());
      EXPECT_TRUE(strided.dk.bits() == compact.dk.bits());
      EXPECT_TRUE(strided.dv.bits() == compact.dv.bits());
    }
  }
}

TEST_P(BackwardCases, P09_ReportedStrides) {
  // Q and K stored [B][H][L][D], V [B][L][H][D]; then dO strided otherwise than O.
  const Problem p = problem("B1 H16 S62 D128");
  const BackwardInputs inputs = make_backward_inputs(p);
  Arrays arrays(p, inputs, row().side);
  arrays.v = Array(row().side, p.dtype, {p.B, p.H, p.N, p.D}, {p.N * p.H * p.D, p.D, p.H * p.D});
  arrays.v.set(inputs.in.v);
  const fa_status status = run_args(arrays.args(p), row());
  if (status == FA_UNSUPPORTED && !on_host()) GTEST_SKIP() << fa_last_error();
  ASSERT_EQ(status, FA_OK) << fa_last_error();
  EXPECT_EQ(check_backward(p, inputs, {arrays.dq.get(), arrays.dk.get(), arrays.dv.get()}), "");

  const Problem g = problem("B2 S32 H4/1 D128");
  const BackwardInputs other = make_backward_inputs(g);
  Arrays differing(g, other, row().side);
  differing.dout = Array(row().side, g.dtype, {g.B, g.H, g.M, g.D}, {g.M * g.H * g.D, g.D, g.H * g.D});
  differing.dout.set(other.dout);
  ASSERT_EQ(run_args(differing.args(g), row()), FA_OK) << fa_last_error();
  EXPECT_EQ(check_backward(g, other, {differing.dq.get(), differing.dk.get(), differing.dv.get()}), "");
}

// dO of stride 0 over any dimensions: the bits of the run on a copy written out.
TEST_P(BackwardCases, P09_BroadcastDout) {
  const Problem p = problem("B2 H4/2 M33 N47 D64 causal deterministic");
  for (int zero = 1; zero < 8; ++zero) {
    SCOPED_TRACE(zero);
    const std::int64_t size[4] = {p.B, p.H, p.M, p.Dv};
    std::int64_t stride[3] = {(zero & 1) != 0 ? 0 : p.H * p.M * p.Dv, (zero & 2) != 0 ? 0 : p.M * p.Dv,
                              (zero & 4) != 0 ? 0 : p.Dv};
    BackwardInputs inputs = make_backward_inputs(p);
    Array dout(row().side, p.dtype, size, stride);
    dout.set(inputs.dout);
    inputs.dout = dout.get();
    const Arrays written_out(p, inputs, row().side);
    const fa_status status = run_args(written_out.args(p), row());
    if (status == FA_UNSUPPORTED && !on_host()) GTEST_SKIP() << fa_last_error();
    ASSERT_EQ(status, FA_OK) << fa_last_error();
    Arrays broadcast(p, inputs, row().side);
    fa_backward_args args = broadcast.args(p);
    args.dout = dout.tensor();
    ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
    EXPECT_TRUE(broadcast.dq.bits() == written_out.dq.bits());
    EXPECT_TRUE(broadcast.dk.bits() == written_out.dk.bits());
    EXPECT_TRUE(broadcast.dv.bits() == written_out.dv.bits());
  }
}

TEST_P(BackwardCases, P09_LastStrideIsOne) {
  const Problem p = problem("B1 H2 M3 N4 D8");
  const Arrays arrays(p, make_backward_inputs(p), row().side);
  const char* const names[] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};
  for (int who = 0; who < 8; ++who) {
    fa_backward_args args = arrays.args(p);
    fa_tensor* const all[] = {&args.q, &args.k, &args.v, &args.out, &args.dout, &args.dq, &args.dk, &args.dv};
    all[who]->stride[3] = 2;
    EXPECT_EQ(run_args(args, row()), FA_INVALID_ARGUMENT);
    EXPECT_NE(std::string(fa_last_error()).find(std::string(names[who]) + ".stride[3] = 2 must be 1"),
              std::string::npos)
        << fa_last_error();
  }
  for (const float x : arrays.dq.get()) ASSERT_TRUE(std::isnan(x)) << "written";
}

// ---- P11: very large logits ----------------------------------------------------------------------------

// One key of 64 wins by 158 in the exponent: dV is dO at that key and 0 at the others, whose P is 0 in fp32;
// dS = P (dP - Delta) is 0 everywhere, at the winner since Delta = dP there.
TEST_P(BackwardCases, P11_VeryNegativeLogits) {
  int ran = 0;
  for (const std::int64_t D : {128, 64}) {
    for (const std::int64_t winner : {0, 17, 63}) {
      const Problem p = problem(shape(1, 16, 16, 1, 64, D) + " seed 3");
      SCOPED_TRACE(to_string(p) + ", key " + std::to_string(winner));
      Inputs in = make_inputs(p);
      std::fill(in.q.begin(), in.q.end(), 0.0f);
      std::fill(in.k.begin(), in.k.end(), 0.0f);
      for (std::int64_t h = 0; h < p.H; ++h) {
        in.q[index(h * D)] = 448;
        for (std::int64_t j = 0; j < p.N; ++j)
          in.k[index((h * p.N + j) * D)] = j == winner ? -540.0f : -544.0f;
      }
      const BackwardInputs inputs = make_backward_inputs(p, in);
      ASSERT_NEAR(inputs.lse[0], -540.0 * 448 / std::sqrt(static_cast<double>(D)), 0.05);
      const auto got = run_row(p, inputs, row());
      if (!got) continue;
      ++ran;
      EXPECT_EQ(check_backward(p, inputs, *got), "");
      // P is 1 up to the rounding of LSE, whose unit is 2^-9, and the type's.
      const float relative = 0x1p-8f + 4 * (p.dtype == Dtype::bfloat16 ? 0x1p-8f : 0x1p-11f);
      for (std::int64_t r = 0; r < p.H * p.N; ++r) {
        for (std::int64_t d = 0; d < D; ++d) {
          const float want = r % p.N == winner ? inputs.dout[index(r / p.N * D + d)] : 0.0f;
          ASSERT_NEAR(got->dv[index(r * D + d)], want, relative * std::fabs(want)) << "key row " << r;
        }
      }
      // Half a unit of dS would be dozens: what is left is the rounding of dP - Delta, times 448 or 544.
      for (const float x : got->dq) ASSERT_NEAR(x, 0.0f, 0.05f);
      for (const float x : got->dk) ASSERT_NEAR(x, 0.0f, 0.05f);
    }
  }
  if (ran == 0) GTEST_SKIP() << "the row rejects every problem of this case";
}

TEST_P(BackwardCases, P11_VeryPositiveLogits) {
  // All logits equal 8e6, where LSE has a unit of 0.5: P = 1 / 64 up to a factor, finite and equal for all
  // keys.
  const Problem level = problem("H1 M3 N64 D64");
  Inputs in = make_inputs(level);
  std::fill(in.q.begin(), in.q.end(), 1000.0f);
  std::fill(in.k.begin(), in.k.end(), 1000.0f);
  const BackwardInputs inputs = make_backward_inputs(level, in);
  ASSERT_NEAR(inputs.lse[0], 8e6 + std::log(64.0), 0.5);
  const auto got = run_row(level, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(level);
  EXPECT_EQ(check_backward(level, inputs, *got), "");
  for (std::int64_t d = 0; d < 64; ++d) {
    double sum = 0;
    for (std::int64_t i = 0; i < 3; ++i) sum += static_cast<double>(inputs.dout[index(i * 64 + d)]) / 64;
    for (std::int64_t j = 0; j < 64; ++j) {
      const double x = static_cast<double>(got->dv[index(j * 64 + d)]);
      ASSERT_GE(x / sum, std::exp(-0.75)) << "key " << j << ", column " << d;
      ASSERT_LE(x / sum, std::exp(0.75)) << "key " << j << ", column " << d;
    }
  }
  if (row().dtype == Dtype::float16) return;  // does not hold what follows

  // One key: the logit, 1.4e11, and all sums on the way are exact in fp32, so that P = 1 and dP = Delta.
  const Problem one = problem("H1 M1 N1 D64");
  BackwardInputs large;
  large.in.q = large.in.k = large.in.v = large.out = std::vector<float>(64, 133120.0f);
  large.dout = std::vector<float>(64, 1.0f);
  large.lse = {133120.0f * 133120.0f * 8};
  const auto exact = run_row(one, large, row());
  ASSERT_TRUE(exact);
  for (const float x : exact->dv) ASSERT_EQ(x, 1.0f);
  for (const float x : exact->dq) ASSERT_EQ(x, 0.0f);
  for (const float x : exact->dk) ASSERT_EQ(x, 0.0f);
}

// A hidden key's logit lies up to 6,336 above the row's LSE: e^(S - LSE) is infinite, and must not meet a 0.
TEST_P(BackwardCases, P11_TheMaskedMaximumDoesNotCount) {
  const Problem p = problem("H2 S100 D64 causal");
  Inputs in = make_inputs(p);
  for (std::int64_t r = 0; r < 200; ++r) {
    for (std::int64_t d = 0; d < 64; ++d) {
      in.q[index(r * 64 + d)] = 8;
      in.k[index(r * 64 + d)] = static_cast<float>(r % 100);
    }
  }
  const BackwardInputs inputs = make_backward_inputs(p, in);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects " << to_string(p);
  EXPECT_EQ(check_backward(p, inputs, *got), "");
  // Each row sees its own key alone, 64 above the next.
  for (std::size_t i = 0; i < got->dv.size(); ++i) ASSERT_EQ(got->dv[i], inputs.dout[i]) << i;
  for (const float x : got->dq) ASSERT_NEAR(x, 0.0f, 0.05f);
  for (const float x : got->dk) ASSERT_NEAR(x, 0.0f, 0.05f);
}

// ---- P12: garbage beyond the used length; dirty workspace ----------------------------------------------

// Keys of a cache with room for more: what lies in the room is not read, and its gradients are not written.
TEST_P(BackwardCases, P12_GarbageBeyondTheUsedLength) {
  const Problem p = problem("B3 H4/2 M9 N70 D64 deterministic");
  constexpr std::int64_t kRoom = 128;
  const BackwardInputs inputs = make_backward_inputs(p);
  std::vector<std::uint32_t> of_zeros;
  for (const float garbage : {0.0f, kNaN, std::numeric_limits<float>::infinity()}) {
    Arrays arrays(p, inputs, row().side);
    const std::int64_t stride[3] = {p.Hk * kRoom * p.D, kRoom * p.D, p.D};
    const std::int64_t spare = (kRoom - p.N) * p.D;
    for (const auto& [array, values] :
         {std::pair<Array*, const std::vector<float>*>{&arrays.k, &inputs.in.k}, {&arrays.v, &inputs.in.v}}) {
      *array = Array(row().side, p.dtype, {p.B, p.Hk, p.N, p.D}, stride, spare);
      array->fill_value(garbage);
      array->set(*values);
    }
    const fa_status status = run_args(arrays.args(p), row());
    if (status == FA_UNSUPPORTED && !on_host()) GTEST_SKIP() << fa_last_error();
    ASSERT_EQ(status, FA_OK) << fa_last_error();
    std::vector<std::uint32_t> bits = arrays.dq.bits();
    for (const Array* gradient : {&arrays.dk, &arrays.dv}) {
      const std::vector<std::uint32_t> more = gradient->bits();
      bits.insert(bits.end(), more.begin(), more.end());
    }
    if (of_zeros.empty()) of_zeros = bits;
    EXPECT_TRUE(bits == of_zeros) << "with " << garbage;
  }
}

TEST_P(BackwardCases, P12_DirtyWorkspace) {
  for (const char* line : {"B2 H4/2 M65 N130 D64 causal deterministic", "B1 H3 M130 N65 D72 deterministic",
                           "B2 H2/1 M33 N33 D128 causal deterministic grad-fp32"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const Arrays arrays(p, make_backward_inputs(p), row().side);
    fa_backward_args args = arrays.args(p);
    const std::optional<std::size_t> size = workspace_size(args);
    if (!size) GTEST_SKIP() << fa_last_error();
    const std::size_t bytes = *size;
    ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
    const std::vector<std::uint32_t> dq = arrays.dq.bits(), dk = arrays.dk.bits(), dv = arrays.dv.bits();
    GuardedBuffer workspace(row().side, bytes, 0xa5);
    for (const unsigned char fill : {0x00, 0x3c, 0x7f, 0xff}) {
      workspace.write(std::vector<unsigned char>(bytes, fill).data());
      args.workspace = workspace.data();
      args.workspace_size = bytes;
      ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
      EXPECT_TRUE(arrays.dq.bits() == dq && arrays.dk.bits() == dk && arrays.dv.bits() == dv)
          << "filled with " << static_cast<int>(fill);
      EXPECT_EQ(workspace.damage(), "");
    }
  }
}

// Without the deterministic mode what is summed in the workspace must start from 0, whatever lay there. The
// sums' order is free: no two runs need have the same bits.
TEST_P(BackwardCases, P12_SumsStartFromZeroInADirtyWorkspace) {
  for (const char* line : {"B2 H4/2 M65 N130 D64 causal", "B1 H3 M130 N65 D72", "B1 H2 M40 N300 D33/48",
                           "B2 H2/1 M33 N33 D128 causal grad-fp32", "H1 M200 N3 D64 causal"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const BackwardInputs inputs = make_backward_inputs(p);
    const BackwardReference reference = make_backward_reference(p, inputs);
    Arrays arrays(p, inputs, row().side);
    fa_backward_args args = arrays.args(p);
    const std::optional<std::size_t> size = workspace_size(args);
    if (!size) GTEST_SKIP() << fa_last_error();
    const std::size_t bytes = *size;
    GuardedBuffer workspace(row().side, bytes, 0xa5);
    args.workspace = workspace.data();
    args.workspace_size = bytes;
    // 0x3c: small numbers, which a sum would keep; 0x7f: 3.4e38 as fp32; 0xff: NaN.
    for (const unsigned char fill : {0x00, 0x3c, 0x7f, 0xff}) {
      workspace.write(std::vector<unsigned char>(bytes, fill).data());
      for (Array* gradient : {&arrays.dq, &arrays.dk, &arrays.dv}) gradient->fill(0xff);
      ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
      const Gradients<float> got = {arrays.dq.get(), arrays.dk.get(), arrays.dv.get()};
      EXPECT_EQ(check_backward(p, reference, inputs, got), "") << "filled with " << static_cast<int>(fill);
      EXPECT_EQ(workspace.damage(), "");
    }
  }
}

// NaN in a query, a key or dO reaches every gradient that it takes part in, and no other batch.
TEST_P(BackwardCases, P12_VisibleNaNReachesWhoSeesIt) {
  const Problem p = problem("B2 H2 M40 N50 D64");
  const BackwardInputs good = make_backward_inputs(p);
  const auto want = run_row(p, good, row());
  if (!want) GTEST_SKIP() << "the row rejects the problem";
  const std::size_t last = good.in.q.size() - 3;  // of batch 1, head 1
  for (int who = 0; who < 3; ++who) {
    SCOPED_TRACE(who);
    BackwardInputs bad = good;
    (who == 0 ? bad.in.q[last] : who == 1 ? bad.in.k[bad.in.k.size() - 3] : bad.dout[last]) = kNaN;
    const auto got = run_row(p, bad, row());
    ASSERT_TRUE(got);
    const std::size_t dq_end = got->dq.size(), dk_end = got->dk.size();
    if (who != 1) {
      for (std::size_t i = dk_end - index(p.N * p.D); i < dk_end; ++i) {
        ASSERT_TRUE(who == 2 || std::isnan(got->dk[i])) << "dk, element " << i;
      }
      EXPECT_TRUE(std::isnan(got->dq[dq_end - 1]));
      EXPECT_TRUE(std::isnan(got->dv[dk_end - 3]));
    } else {
      for (std::size_t i = dq_end - index(p.M * p.D); i < dq_end; ++i) {
        ASSERT_TRUE(std::isnan(got->dq[i])) << "dq, element " << i;
      }
    }
    const auto same = [&](const std::vector<float>& a, const std::vector<float>& b) {
      return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(a.size() / 4 * 3), b.begin(),
                        [](float x, float y) { return std::fabs(x - y) <= 1e-2f; });
    };
    EXPECT_TRUE(same(got->dq, want->dq) && same(got->dk, want->dk) && same(got->dv, want->dv))
        << "another head changed";
  }
}

// ---- P13: scale 0 and negative -------------------------------------------------------------------------

TEST_P(BackwardCases, P13_ScaleZeroIsLiteral) {
  const Problem p = problem("S64 D64 causal scale:0");
  const BackwardInputs inputs = make_backward_inputs(p);
  const auto got = run_row(p, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects the problem";
  EXPECT_EQ(check_backward(p, inputs, *got), "");
  for (const float x : got->dq) ASSERT_EQ(x, 0.0f);
  for (const float x : got->dk) ASSERT_EQ(x, 0.0f);
  for (std::int64_t d = 0; d < p.D; ++d) {
    double want = 0;  // dV_j = sum over i >= j of dO_i / (i + 1)
    for (std::int64_t j = p.N - 1; j >= 0; --j) {
      want += static_cast<double>(inputs.dout[index(j * p.D + d)]) / static_cast<double>(j + 1);
      ASSERT_NEAR(got->dv[index(j * p.D + d)], want, p.dtype == Dtype::float32 ? 1e-5 : 2e-2) << j;
    }
  }
}

TEST_P(BackwardCases, P13_NegativeScale) {
  const Problem negative = problem("S64 D64 causal scale:-0.125");
  Problem positive = negative;
  positive.scale = 0.125f;
  Inputs in = make_inputs(negative);
  const BackwardInputs inputs = make_backward_inputs(negative, in);
  for (float& x : in.q) x = -x;
  const BackwardInputs mirrored = make_backward_inputs(positive, in);
  const auto got = run_row(negative, inputs, row());
  if (!got) GTEST_SKIP() << "the row rejects the problem";
  EXPECT_EQ(check_backward(negative, inputs, *got), "");
  const auto want = run_row(positive, mirrored, row());
  ASSERT_TRUE(want);
  const float tolerance = negative.dtype == Dtype::float32 ? 1e-5f : 2e-2f;
  for (std::size_t i = 0; i < got->dq.size(); ++i) {
    ASSERT_NEAR(got->dq[i], -want->dq[i], tolerance * (1 + std::fabs(want->dq[i])));
    ASSERT_NEAR(got->dk[i], want->dk[i], tolerance * (1 + std::fabs(want->dk[i])));
    ASSERT_NEAR(got->dv[i], want->dv[i], tolerance * (1 + std::fabs(want->dv[i])));
  }
}

// ---- P15: a left bound does not see the future ---------------------------------------------------------

TEST_P(BackwardCases, P15_LeftWindowEqualsCausal) {
  for (const char* sizes : {"M100 N100", "M60 N130", "M130 N60"}) {
    const Problem windowed = problem(std::string("H2/1 D64 deterministic ") + sizes + " window:1000,0");
    Problem causal = windowed;
    causal.mask = Mask::causal();
    const BackwardInputs inputs = make_backward_inputs(causal);
    const auto got = run_row(windowed, inputs, row()), want = run_row(causal, inputs, row());
    ASSERT_EQ(got.has_value(), want.has_value());
    if (!got) continue;
    EXPECT_EQ(check_backward(windowed, inputs, *got), "");
    EXPECT_TRUE(bits_of(*got) == bits_of(*want)) << sizes;
  }
}

// ---- P18: very negative LSE ----------------------------------------------------------------------------

TEST_P(BackwardCases, P18_VeryNegativeLse) {
  for (const std::int64_t D : {64, 32, 128}) {
    for (const std::int64_t L : {64, 192, 640, 704, 768, 832}) {
      if (on_host() && L > 704) continue;
      for (const bool causal : {false, true}) {
        Problem p = problem(shape(1, 1, 1, L, L, D) + " scale:0.125" + (causal ? " causal" : ""));
        SCOPED_TRACE(to_string(p));
        Inputs in = make_inputs(p);
        for (std::vector<float>* x : {&in.q, &in.k}) {
          for (float& value : *x) value = round_to(p.dtype, 0.1f * value);
        }
        for (std::int64_t i = 0; i < L; ++i) in.q[index(i * D)] = 1, in.k[index(i * D)] = -960;
        const BackwardInputs inputs = make_backward_inputs(p, in);
        EXPECT_LT(inputs.lse.back(), -105.0f);
        const auto got = run_row(p, inputs, row());
        if (!got) continue;
        EXPECT_EQ(check_backward(p, inputs, *got), "");
      }
    }
  }
}

// ---- P19: races, repeatability -------------------------------------------------------------------------

TEST_P(BackwardCases, P19_DeterministicRunsAreOne) {
  for (const char* line : {"B2 H4/2 M200 N150 D64 causal deterministic", "B3 H2 M300 N40 D128 deterministic",
                           "B1 H8/1 M130 N130 D40 causal deterministic"}) {
    SCOPED_TRACE(line);
    const Problem p = problem(line);
    const BackwardInputs inputs = make_backward_inputs(p);
    const auto first = run_row(p, inputs, row());
    if (!first) continue;
    EXPECT_EQ(check_backward(p, inputs, *first), "");
    for (int round = 0; round < (on_host() ? 10 : 50); ++round) {
      const auto again = run_row(p, inputs, row());
      ASSERT_TRUE(again);
      ASSERT_TRUE(bits_of(*again) == bits_of(*first)) << "run " << round;
    }
  }
}

TEST_P(BackwardCases, P19_ReportedSizeFiftyTimes) {
  Problem p = problem("B300 H1 M2048 N128 D128");
  if (on_host()) p.B = 2, p.M = 256;
  const Watchdog watchdog(kSecondsPerCase * 20, to_string(p));
  BackwardInputs inputs = make_backward_inputs(p, tripled(p));
  std::fill(inputs.dout.begin(), inputs.dout.end(), 1.0f);
  const BackwardReference reference = make_backward_reference(p, inputs);
  const Arrays arrays(p, inputs, row().side);
  for (const bool deterministic : {false, true}) {
    fa_backward_args args = arrays.args(p);
    args.deterministic = deterministic ? 1 : 0;
    const Array* const gradients[] = {&arrays.dq, &arrays.dk, &arrays.dv};
    std::vector<unsigned char> first[3];
    for (int round = 0; round < 50; ++round) {
      const fa_status status = run_args(args, row());
      if (status == FA_UNSUPPORTED && !on_host()) GTEST_SKIP() << fa_last_error();
      ASSERT_EQ(status, FA_OK) << fa_last_error();
      if (round == 0 || (!deterministic && round % 10 == 9)) {
        const Gradients<float> got = {arrays.dq.get(), arrays.dk.get(), arrays.dv.get()};
        ASSERT_EQ(check_backward(p, reference, inputs, got), "") << "run " << round;
      }
      if (!deterministic) continue;
      for (int g = 0; g < 3; ++g) {
        const std::vector<unsigned char> now = gradients[g]->bytes();
        if (round == 0) first[g] = now;
        ASSERT_TRUE(now == first[g]) << "run " << round << ", gradient " << g;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardCases, testing::ValuesIn(backward_rows()), RowName());

// ---- P25: fp32 exactness -------------------------------------------------------------------------------

class BackwardCasesFp32 : public BackwardCases {};

TEST_P(BackwardCasesFp32, P25_ErrorStaysAtFp32Level) {
  for (const char* mask : {"", " causal"}) {
    const Problem p = problem((on_host() ? "B1 H2 S512 D64" : "B2 H2 S1024 D64") + std::string(mask));
    const BackwardInputs inputs = make_backward_inputs(p);
    const auto got = run_row(p, inputs, row());
    ASSERT_TRUE(got);
    const Gradients<double> want = oracle_backward(p, inputs);
    const auto expect = [&](const char* name, const std::vector<float>& g, const std::vector<double>& w) {
      double error = 0, largest = 0;
      for (std::size_t i = 0; i < w.size(); ++i) {
        error = std::max(error, std::fabs(static_cast<double>(g[i]) - w[i]));
        largest = std::max(largest, std::fabs(w[i]));
      }
      std::printf("%s, %s: max abs error %.2e of %.2e\n", to_string(p).c_str(), name, error, largest);
      EXPECT_LE(error, 1e-5 * largest) << name;
    };
    expect("dq", got->dq, want.dq);
    expect("dk", got->dk, want.dk);
    expect("dv", got->dv, want.dv);
  }
}

std::vector<Row> fp32_rows() {
  std::vector<Row> rows = backward_rows();
  std::erase_if(rows, [](const Row& row) { return row.dtype != Dtype::float32; });
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardCasesFp32, testing::ValuesIn(fp32_rows()), RowName());

}  // namespace
}  // namespace fa::test
