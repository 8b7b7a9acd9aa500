/// The backward oracle, the rule that decides, and what the harness notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/backward/rows.hpp"

namespace fa::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The loss whose gradient with respect to O is dO.
double loss(const Problem& p, const Inputs& in, const std::vector<float>& dout) {
  const Outputs<double> forward = oracle_forward(p, in);
  double sum = 0;
  for (std::size_t i = 0; i < dout.size(); ++i) sum += static_cast<double>(dout[i]) * forward.out[i];
  return sum;
}

// Central differences of the forward oracle, element by element: |error| is h^2 / 6 times a third derivative.
TEST(BackwardOracle, AgreesWithFiniteDifferences) {
  for (const char* line :
       {"B1 H2 M5 N7 D4 causal", "B2 H4/2 M6 N4 D3/5 causal", "B1 H3/1 M4 N6 D2 window:1,2",
        "H1 M3 N3 D8 scale:-1.5", "H2 M4 N5 D4 causal-top-left", "H1 M5 N5 D4 scale:0"}) {
    SCOPED_TRACE(line);
    const Problem p = parse_problem(line);
    const BackwardInputs inputs = make_backward_inputs(p);
    const Gradients<double> gradients = oracle_backward(p, inputs);
    Inputs in = inputs.in;
    const auto expect = [&](const char* name, std::vector<float>& x, const std::vector<double>& gradient) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float at = x[i], above = at + 0x1p-10f, below = at - 0x1p-10f;
        x[i] = above;
        const double high = loss(p, in, inputs.dout);
        x[i] = below;
        const double low = loss(p, in, inputs.dout);
        x[i] = at;
        const double slope = (high - low) / (static_cast<double>(above) - static_cast<double>(below));
        ASSERT_NEAR(gradient[i], slope, 3e-5 * (1 + std::fabs(slope))) << name << ", element " << i;
      }
    };
    expect("dq", in.q, gradients.dq);
    expect("dk", in.k, gradients.dk);
    expect("dv", in.v, gradients.dv);
  }
}

// By hand: two keys with weights 1/4 and 3/4, V = (0, 4), dO = 1. Delta = O dO = 3, dP = V, so dS = 1/4 (0 -
// 3) and 3/4 (4 - 3), dQ = sum of dS K, dK = dS Q, dV = P.
TEST(BackwardOracle, TwoKeysByHand) {
  const Problem p = parse_problem("H1 M1 N2 D1 scale:1");
  const float ln3 = 1.09861228866811f;
  const BackwardInputs inputs = {{{1.0f}, {0.0f, ln3}, {0.0f, 4.0f}}, {3.0f}, {1.0f}, {1.38629436111989f}};
  const Gradients<double> g = oracle_backward(p, inputs);
  EXPECT_NEAR(g.dv[0], 0.25, 1e-7);
  EXPECT_NEAR(g.dv[1], 0.75, 1e-7);
  EXPECT_NEAR(g.dk[0], -0.75, 1e-7);
  EXPECT_NEAR(g.dk[1], 0.75, 1e-7);
  EXPECT_NEAR(g.dq[0], 0.75 * static_cast<double>(ln3), 1e-7);
}

// The yardstick is as far from the oracle as its type's rounding says, and no further.
TEST(BackwardOracle, TheYardstickRoundsToItsType) {
  const struct {
    const char* dtype;
    double least, most;
  } types[] = {{"fp32", 1e-9, 1e-5}, {"fp16", 1e-5, 1e-2}, {"bf16", 1e-4, 1e-1}};
  for (const auto& type : types) {
    const Problem p = parse_problem(std::string(type.dtype) + " H2/1 M70 N90 D64 causal");
    const BackwardReference reference = make_backward_reference(p, make_backward_inputs(p));
    double error = 0;
    for (std::size_t i = 0; i < reference.oracle.dk.size(); ++i) {
      error =
          std::max(error, std::fabs(static_cast<double>(reference.yardstick.dk[i]) - reference.oracle.dk[i]));
    }
    EXPECT_GE(error, type.least) << type.dtype;
    EXPECT_LE(error, type.most) << type.dtype;
    EXPECT_EQ(check_backward(p, reference, make_backward_inputs(p), reference.yardstick), "");
  }
}

// Faults that a kernel might have, planted in right gradients.
TEST(CheckBackward, NoticesPlantedFaults) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const Problem p = parse_problem(std::string(dtype) + " B2 H4/2 M130 N70 D64 causal seed 3");
    const BackwardInputs inputs = make_backward_inputs(p);
    const BackwardReference reference = make_backward_reference(p, inputs);
    const Gradients<float> right = reference.yardstick;
    ASSERT_EQ(check_backward(p, reference, inputs, right), "");
    const auto expect = [&](const char* text, Gradients<float> wrong) {
      const std::string said = check_backward(p, reference, inputs, wrong);
      EXPECT_TRUE(contains(said, text)) << dtype << ": wanted '" << text << "', got: " << said;
    };
    Gradients<float> g = right;
    g.dq[g.dq.size() - 1] += 0.25f;
    expect("dq: max abs error", g);
    g = right;
    for (float& x : g.dk) x *= 1.05f;
    expect("dk: ", g);
    g = right;
    g.dv[7] = NAN;
    expect("dv: NaN or infinity in the wrong place", g);
    g = right;
    g.dq[3] = 1e-30f;  // row 0 of M130 N70 sees no key
    expect("dq: row [0, 0, 0] sees no key and must be 0", g);
    g = right;
    g.dk.pop_back();
    expect("dk: wrong number of elements", g);
    // One query head of a group left out of dV.
    g = right;
    for (std::size_t i = 0; i < g.dv.size(); ++i) g.dv[i] *= 0.5f;
    expect("dv: ", g);
  }
}

// TF32 where fp32 is due: a relative error of 2^-11 in every term.
TEST(CheckBackward, NoticesTf32) {
  const Problem p = parse_problem("fp32 B1 H2 M128 N128 D64");
  const BackwardInputs inputs = make_backward_inputs(p);
  BackwardInputs rounded = inputs;
  for (std::vector<float>* values : {&rounded.in.q, &rounded.in.k, &rounded.in.v, &rounded.dout}) {
    for (float& x : *values) x = round_to(Dtype::float16, x);  // 11 bits, as TF32's
  }
  const Gradients<float> got = yardstick_backward(p, rounded);
  EXPECT_NE(check_backward(p, inputs, got), "");
}

TEST(BackwardProblem, WordsOfBackward) {
  const Problem p = parse_problem("fp16 S8 D64 grad-fp32 deterministic dout-broadcast");
  EXPECT_EQ(p.gradient_dtype(), Dtype::float32);
  EXPECT_TRUE(p.deterministic && p.dout_broadcast);
  EXPECT_EQ(to_string(p), "fp16 grad-fp32 B1 H1 M8 N8 D64 dout-broadcast deterministic");
  EXPECT_TRUE(parse_problem(to_string(p)) == p);
  EXPECT_FALSE(parse_problem("fp16 S8 D64 grad-fp32 deterministic") == p);
  const Problem forward = parse_problem("S100 D64"), backward = parse_problem("S100 D64 backward"),
                both = parse_problem("S100 D64 forward+backward");
  EXPECT_EQ(backward.flops(), 2.5 * forward.flops());
  EXPECT_EQ(both.flops(), 3.5 * forward.flops());
  EXPECT_EQ(parse_problem("S100 D64/32 backward").flops(), 2.0 * 100 * 100 * (3 * 64 + 2 * 32));
  for (const Problem& passes : {forward, backward, both}) {
    EXPECT_TRUE(parse_problem(to_string(passes)) == passes) << to_string(passes);
  }
  EXPECT_THROW(parse_problem("S8 forward backward"), std::invalid_argument);
  EXPECT_THROW(parse_problem("S8 deterministic deterministic"), std::invalid_argument);
  EXPECT_THROW(parse_problem("S8 grad-fp32 grad-fp16"), std::invalid_argument);
  for (std::uint64_t seed = 1; seed < 300; ++seed) {
    const Problem random = random_backward_problem(seed);
    EXPECT_TRUE(parse_problem(to_string(random)) == random) << to_string(random);
    EXPECT_TRUE(random.lse && random.dtype_out == Dtype::none);
  }
}

// What a faulty kernel might do, in place of fa_backward.

template <class Spoil>
fa_status spoiled(const fa_backward_args* args, fa_version version, Stream stream, const Spoil& spoil) {
  const fa_status status = fa_backward(args, version, stream);
  spoil();
  return status;
}

void spoil(const void* data, std::ptrdiff_t at) {
  static_cast<unsigned char*>(const_cast<void*>(data))[at] ^= 0x11;
}

fa_status write_before_dq(const fa_backward_args* args, fa_version version, Stream stream) {
  return spoiled(args, version, stream, [=] { spoil(args->dq.data, -1); });
}

fa_status write_in_a_gap_of_dk(const fa_backward_args* args, fa_version version, Stream stream) {
  const auto gap = static_cast<std::ptrdiff_t>(args->dk.size[3]) * 4;
  return spoiled(args, version, stream, [=] { spoil(args->dk.data, gap); });
}

fa_status write_after_workspace(const fa_backward_args* args, fa_version version, Stream stream) {
  const auto end = static_cast<std::ptrdiff_t>(args->workspace_size);
  return spoiled(args, version, stream, [=] { spoil(args->workspace, end); });
}

fa_status write_to_lse(const fa_backward_args* args, fa_version version, Stream stream) {
  return spoiled(args, version, stream, [=] { spoil(args->lse, 2); });
}

fa_status write_to_dout(const fa_backward_args* args, fa_version version, Stream stream) {
  return spoiled(args, version, stream, [=] { spoil(args->dout.data, 1); });
}

fa_status write_and_refuse(const fa_backward_args* args, fa_version, Stream) {
  spoil(args->dv.data, 3);
  return FA_UNSUPPORTED;
}

fa_status write_nothing(const fa_backward_args*, fa_version, Stream) {
  return FA_OK;
}

class RunBackwardFaults : public testing::Test {
 protected:
  void SetUp() override {
    guard_bytes = 4096;
  }  // off under AddressSanitizer, which would stop the planted writes
  void TearDown() override { guard_bytes = before_; }

  BackwardRunResult run(BackwardCall call) {
    return run_backward(problem_, inputs_, Version::CPU, Side::host, call);
  }

  std::size_t before_ = guard_bytes;
  const Problem problem_ = parse_problem("fp32 B2 H2 S9 D5 padded seed 3");
  const BackwardInputs inputs_ = make_backward_inputs(problem_);
};

TEST_F(RunBackwardFaults, StrayWritesAreNamed) {
  const struct {
    BackwardCall call;
    const char* text;
  } cases[] = {
      {write_before_dq, "dq: 1 bytes before it, from -1 to -1\n"},
      {write_in_a_gap_of_dk, "dk: written at byte 20\n"},
      {write_after_workspace, "workspace: 1 bytes after it, from 0 to 0\n"},
      {write_to_lse, "lse: changed at byte 2\n"},
      {write_to_dout, "dout: changed at byte 1\n"},
  };
  EXPECT_EQ(run(fa_backward).guard_damage, "");
  for (const auto& c : cases) EXPECT_EQ(run(c.call).guard_damage, c.text);
}

TEST_F(RunBackwardFaults, UnwrittenGradientsAndRefusals) {
  const std::string text = check_backward(problem_, inputs_, run(write_nothing).got);
  for (const char* name : {"dq: NaN", "dk: NaN", "dv: NaN"}) EXPECT_TRUE(contains(text, name)) << text;
  try {
    run(write_and_refuse);
    ADD_FAILURE() << "a refused call wrote";
  } catch (const std::logic_error& error) {
    EXPECT_TRUE(contains(error.what(), "dv: written at byte 3")) << error.what();
  }
}

}  // namespace
}  // namespace fa::test
