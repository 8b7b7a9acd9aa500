/// The stated limits of rows whose tiles hold one head size, or whose copies want aligned rows: what they
/// reject, in which words, who stands in for them, and what is no reason to reject. And what Auto takes on
/// either side.
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

constexpr std::int64_t kD = 64;  // D and Dv of the rows here

// Distances in elements from what is aligned to 16 bytes, of one tensor. Times the element's size they are
// the alignment that is left.
struct Shift {
  std::int64_t base = 0, batch = 0, head = 0, seq = 0;
};

/// [B, H, S, 64] somewhere in a buffer whose gaps hold NaN, or, of an output, 0xFF.
class Placement {
 public:
  Placement(Dtype dtype, std::int64_t B, std::int64_t H, std::int64_t S, const Shift& shift)
      : base_(shift.base),
        width_(static_cast<std::int64_t>(size_of(dtype))),
        // Rows of 64 + base elements, of which the tensor is the last 64.
        rows_(Side::device, dtype, {B, H, S, shift.base + kD},
              {H * (S * 96 + 16) + shift.batch, S * 96 + shift.head, 80 + shift.seq}) {
    rows_.fill(0xff);
  }

  void set(const std::vector<float>& values) {
    std::vector<float> rows;
    for (std::size_t at = 0; at < values.size(); at += kD) {
      rows.insert(rows.end(), static_cast<std::size_t>(base_), std::nanf(""));
      rows.insert(rows.end(), values.begin() + static_cast<std::ptrdiff_t>(at),
                  values.begin() + static_cast<std::ptrdiff_t>(at + kD));
    }
    rows_.set(rows);
  }
  std::vector<float> get() const {
    std::vector<float> values;
    const std::vector<float> rows = rows_.get();
    const auto pitch = static_cast<std::size_t>(base_ + kD);
    for (std::size_t at = 0; at < rows.size(); at += pitch) {
      values.insert(values.end(), rows.begin() + static_cast<std::ptrdiff_t>(at) + base_,
                    rows.begin() + static_cast<std::ptrdiff_t>(at + pitch));
    }
    return values;
  }
  fa_tensor tensor() const {
    fa_tensor t = rows_.tensor();
    t.data = static_cast<char*>(t.data) + base_ * width_;
    t.size[3] = kD;
    return t;
  }

 private:
  std::int64_t base_, width_;
  Array rows_;
};

/// A problem of D64 on the device, each of its tensors shifted in its own way.
class PlacedCall {
 public:
  PlacedCall(const Problem& p, const Shift (&shift)[4])
      : problem_(p),
        inputs_(make_inputs(p)),
        q_(p.dtype, p.B, p.H, p.M, shift[0]),
        k_(p.dtype, p.B, p.Hk, p.N, shift[1]),
        v_(p.dtype, p.B, p.Hk, p.N, shift[2]),
        out_(p.out_dtype(), p.B, p.H, p.M, shift[3]),
        lse_(Side::device, rows() * sizeof(float)) {
    q_.set(inputs_.q);
    k_.set(inputs_.k);
    v_.set(inputs_.v);
    const std::vector<unsigned char> unset(rows() * sizeof(float), 0xff);
    lse_.write(0, unset.data(), unset.size());
  }

  fa_forward_args args() const {
    fa_forward_args a;
    if (fa_forward_args_init(&a, sizeof a) != FA_OK) throw std::runtime_error(fa_last_error());
    a.q = q_.tensor();
    a.k = k_.tensor();
    a.v = v_.tensor();
    a.out = out_.tensor();
    a.lse = static_cast<float*>(lse_.data());
    a.mask = {problem_.mask.left, problem_.mask.right, static_cast<std::int32_t>(problem_.mask.alignment), 0};
    return a;
  }
  Outputs<float> got() const {
    Outputs<float> outputs{out_.get(), std::vector<float>(rows())};
    lse_.read(0, outputs.lse.data(), rows() * sizeof(float));
    return outputs;
  }
  /// "": right.
  std::string check() const { return check_forward(problem_, inputs_, got()); }
  bool untouched() const {
    const Outputs<float> now = got();
    for (const std::vector<float>* values : {&now.out, &now.lse})
      for (const float x : *values)
        if (!std::isnan(x)) return false;
    return true;
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(problem_.B * problem_.H * problem_.M); }

  Problem problem_;
  Inputs inputs_;
  Placement q_, k_, v_, out_;
  Memory lse_;
};

std::string explain_text(const fa_forward_args& args, Version version) {
  std::size_t length = 0;
  const auto v = static_cast<fa_version>(version);
  if (fa_forward_explain(&args, v, nullptr, nullptr, 0, &length) != FA_OK) return fa_last_error();
  std::string text(length + 1, '\0');
  fa_forward_explain(&args, v, nullptr, text.data(), text.size(), nullptr);
  text.resize(length);
  return text;
}

std::string title(const Row& row) {
  return std::string(name_of(row.version)) + " (" + row.kernel + ")";
}

class Limits : public RowSuite {
 protected:
  /// The table's; empty: none. Which it must be is CApi.TheStandInsOfTheTable's.
  std::string stand_in() const {
    for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
      fa_kernel_info info = {};
      info.size = sizeof info;
      if (fa_kernel_info_get(i, &info) != FA_OK) throw std::runtime_error(fa_last_error());
      if (row().kernel == info.name && info.stand_in != nullptr) return info.stand_in;
    }
    return "";
  }
  bool needs_alignment() const { return row().version != Version::V3; }
  std::string in_place_of() const {
    return "runs: V2 (" + stand_in() + ") in place of " + title(row()) + ",";
  }
};

TEST_P(Limits, OtherHeadSizes) {
  if (row().version > Version::V6) GTEST_SKIP() << "the row takes other head sizes";
  const struct {
    const char* sizes;
    const char* reason;
  } heads[] = {
      {"D80", "takes D = Dv = 64 alone, but D = 80 and Dv = 80"},
      {"D64/40", "takes D = Dv = 64 alone, but D = 64 and Dv = 40"},
      {"D40/64", "takes D = Dv = 64 alone, but D = 40 and Dv = 64"},
      {"D64/128", "takes D = Dv = 64 alone, but D = 64 and Dv = 128"},
      {"D63", "takes D = Dv = 64 alone, but D = 63 and Dv = 63"},
      {"D65", "takes D = Dv = 64 alone, but D = 65 and Dv = 65"},
      {"D32", "takes D = Dv = 64 alone, but D = 32 and Dv = 32"},
      {"D128", "takes D = Dv = 64 alone, but D = 128 and Dv = 128"},
  };
  for (const auto& [sizes, reason] : heads) {
    const Problem p = problem(std::string("B2 H4/2 M40 N70 causal ") + sizes);
    SCOPED_TRACE(to_string(p));
    const std::string said = title(row()) + ": " + reason;
    const Explanation explained = explain_problem(p, row());
    EXPECT_NE(explained.text.find("  " + said + "\n"), std::string::npos) << explained.text;
    if (row().dtype == Dtype::float32) {
      EXPECT_TRUE(explained.runs);
      EXPECT_EQ(explained.version, Version::V2);
      EXPECT_EQ(explained.kernel, "v2_flash2_fp32");
      EXPECT_NE(explained.text.find(in_place_of()), std::string::npos) << explained.text;
      EXPECT_TRUE(check_row(p, row()));
      continue;
    }
    EXPECT_FALSE(explained.runs);
    EXPECT_EQ(explained.kernel, "");
    try {
      run_forward(p, make_inputs(p), row().version,
                  row().side);  // std::logic_error where outputs were written
      ADD_FAILURE() << "ran";
    } catch (const Unsupported& e) {
      EXPECT_EQ(std::string(e.what()), said);
    }
  }
}

TEST_P(Limits, HeadSizesOfV7) {
  if (row().version != Version::V7) GTEST_SKIP() << "V7's own limits";
  const struct {
    const char* sizes;
    const char* reason;
  } heads[] = {
      {"D132", "takes D and Dv that are multiples of 8, but D = 132 and Dv = 132"},
      {"D64/60", "takes D and Dv that are multiples of 8, but D = 64 and Dv = 60"},
      {"D63/64", "takes D and Dv that are multiples of 8, but D = 63 and Dv = 64"},
  };
  for (const auto& [sizes, reason] : heads) {
    const Problem p = problem(std::string("B2 H4/2 M40 N70 causal ") + sizes);
    SCOPED_TRACE(to_string(p));
    const Explanation e = explain_problem(p, row());
    EXPECT_NE(e.text.find("  " + title(row()) + ": " + reason + "\n"), std::string::npos) << e.text;
    EXPECT_EQ(e.kernel, stand_in());
    EXPECT_TRUE(check_row(p, row()));
  }
  const Explanation e = explain_problem(problem("B1 H1 M4 N4 D264"), row());
  EXPECT_FALSE(e.runs);
  EXPECT_NE(e.text.find("takes D and Dv up to 256, but D = 264 and Dv = 264"), std::string::npos) << e.text;
}

struct Off {
  const char* what;
  Shift shift;  // by one element
};
constexpr Off kOff[] = {
    {"base pointer", {1, 0, 0, 0}},
    {"batch stride", {0, 1, 0, 0}},
    {"head stride", {0, 0, 1, 0}},
    {"row stride", {0, 0, 0, 1}},
};

Shift times(const Shift& shift, std::int64_t n) {
  return {shift.base * n, shift.batch * n, shift.head * n, shift.seq * n};
}

// Each of q, k and v in turn, by 1, 2, ... elements up to half of 16 bytes.
TEST_P(Limits, UnalignedRows) {
  const Problem p = problem("B2 H4/2 M33 N50 D64 causal");
  const std::int64_t width = static_cast<std::int64_t>(size_of(p.dtype));
  const char* const names[] = {"q", "k", "v"};
  for (int who = 0; who < 3; ++who) {
    for (const Off& off : kOff) {
      for (std::int64_t by = 1; by * width < 16; by *= 2) {
        SCOPED_TRACE(std::string(names[who]) + ", " + off.what + " " + std::to_string(by) + " elements off");
        Shift shifts[4];
        shifts[who] = times(off.shift, by);
        const PlacedCall call(p, shifts);
        const fa_forward_args args = call.args();
        const std::string said = title(row()) + ": needs rows aligned to 16 bytes, but rows of " +
                                 names[who] + " are aligned to " + std::to_string(by * width);
        const std::string text = explain_text(args, row().version);
        if (!needs_alignment() || !stand_in().empty()) {
          EXPECT_EQ(kernel_of(args, row()), needs_alignment() ? stand_in() : row().kernel);
          EXPECT_EQ(text.find(in_place_of()) != std::string::npos, needs_alignment()) << text;
          EXPECT_EQ(text.find("  " + said + "\n") != std::string::npos, needs_alignment()) << text;
          ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
          EXPECT_EQ(call.check(), "");
          continue;
        }
        EXPECT_NE(text.find("nothing runs\n"), std::string::npos) << text;
        EXPECT_NE(text.find("  " + said + "\n"), std::string::npos) << text;
        EXPECT_EQ(run_args(args, row()), FA_UNSUPPORTED);
        EXPECT_EQ(std::string(fa_last_error()), said);
        EXPECT_TRUE(call.untouched());
        EXPECT_EQ(fa_forward_prepare(&args, static_cast<fa_version>(row().version)), FA_UNSUPPORTED);
        EXPECT_EQ(std::string(fa_last_error()), said);
      }
    }
  }
}

// A dimension of one index takes no step, and a tensor without elements has no rows: their strides, and the
// pointer of the latter, are nobody's alignment.
TEST_P(Limits, StridesThatAreNeverTaken) {
  const struct {
    const char* line;
    Shift shift[4];
  } cases[] = {
      {"B1 H4/2 M33 N50 D64 causal", {{0, 1, 0, 0}, {0, 3, 0, 0}, {0, 5, 0, 0}, {}}},
      {"B2 H1 M33 N50 D64 causal", {{0, 0, 1, 0}, {0, 0, 3, 0}, {0, 0, 5, 0}, {}}},
      {"B2 H4/1 M33 N50 D64 causal", {{}, {0, 0, 3, 0}, {0, 0, 5, 0}, {}}},
      {"B2 H4/2 M1 N50 D64", {{0, 0, 0, 1}, {}, {}, {}}},
      {"B2 H4/2 M33 N1 D64", {{}, {0, 0, 0, 3}, {0, 0, 0, 5}, {}}},
      {"B1 H1 M1 N1 D64", {{0, 7, 5, 3}, {0, 1, 3, 5}, {0, 3, 1, 7}, {}}},
      {"B2 H4/2 M33 N0 D64", {{}, {1, 1, 1, 1}, {3, 3, 3, 3}, {}}},
  };
  for (const auto& [line, shift] : cases) {
    SCOPED_TRACE(line);
    const PlacedCall call(problem(line), shift);
    const fa_forward_args args = call.args();
    EXPECT_EQ(kernel_of(args, row()), row().kernel);
    ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
    EXPECT_EQ(call.check(), "");
  }
}

// Only q, k and v are read 16 bytes at a time.
TEST_P(Limits, OutMayBeUnaligned) {
  for (const char* line : {"B2 H4/2 M70 N50 D64 causal", "B2 H4/2 M70 N50 D64 causal out-fp32",
                           "B2 H4/2 M70 N50 D64 causal out-bf16"}) {
    const Problem p = problem(line);
    const PlacedCall aligned(p, {});
    ASSERT_EQ(run_args(aligned.args(), row()), FA_OK) << fa_last_error();
    EXPECT_EQ(aligned.check(), "") << line;
    const std::vector<std::uint32_t> want = bits_of(aligned.got().out);
    for (const Off& off : kOff) {
      SCOPED_TRACE(std::string(line) + ", " + off.what);
      const PlacedCall call(p, {{}, {}, {}, off.shift});
      const fa_forward_args args = call.args();
      EXPECT_EQ(kernel_of(args, row()), row().kernel);
      ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
      EXPECT_EQ(bits_of(call.got().out), want);
    }
  }
}

std::vector<Row> rows_with_limits() {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [](const Row& row) { return row.version < Version::V3 || row.version > Version::V7; });
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, Limits, testing::ValuesIn(rows_with_limits()), RowName());

// ---- Auto
// --------------------------------------------------------------------------------------------------

struct Best {
  Dtype dtype;
  const char* aligned;    // D64, all rows aligned to 16 bytes
  const char* unaligned;  // D64
  const char* other;      // another head size
};
constexpr Best kBest[] = {
    {Dtype::float32, "v4_vectorized_fp32", "v3_warp_local", "v2_flash2_fp32"},
    {Dtype::float16, "v7_ampere_fp16", "v2_flash2_fp16", "v7_ampere_fp16"},
    {Dtype::bfloat16, "v7_ampere_bf16", "v2_flash2_bf16", "v7_ampere_bf16"},
};

std::ostream& operator<<(std::ostream& os, const Best& best) {
  return os << name_of(best.dtype);
}

class AutoOnDevice : public testing::TestWithParam<Best> {
 protected:
  void SetUp() override {
    for (const Row& row : forward_rows_of(GetParam().dtype)) {
      if (!row.built) GTEST_SKIP() << "skipped: this build left out " << row.kernel;
    }
    if (!have_device()) GTEST_SKIP() << "skipped: no CUDA device";
  }
  Row any() const { return {Version::Auto, GetParam().dtype, Side::device, true, "Auto"}; }
  Problem problem(const char* line) const {
    Problem p = parse_problem(line);
    p.dtype = GetParam().dtype;
    return p;
  }
};

TEST_P(AutoOnDevice, TakesTheFastestRowThatAccepts) {
  for (const char* line : {"B2 H4/2 S160 D64 causal", "B1 H2 M33 N97 D64 bshd", "B2 H4/2 S97 D64 packed",
                           "B2 H2 S65 D64 padded", "B2 H2 S65 D64 broadcast", "B1 H1 M5 N0 D64"}) {
    const Problem p = problem(line);
    const Explanation explained = explain_problem(p, any());
    EXPECT_EQ(explained.kernel, GetParam().aligned) << explained.text;
    EXPECT_TRUE(check_row(p, any()));
  }
  for (const char* line : {"B2 H4/2 S160 D64 unaligned causal", "B1 H2 M33 N97 D64 unaligned"}) {
    const Problem p = problem(line);
    const Explanation explained = explain_problem(p, any());
    EXPECT_EQ(explained.kernel, GetParam().unaligned) << explained.text;
    EXPECT_TRUE(check_row(p, any()));
  }
  for (const char* line : {"B2 H4/2 M160 N170 D80 causal", "B1 H2 M33 N97 D64/40"}) {
    const Problem p = problem(line);
    const Explanation explained = explain_problem(p, any());
    EXPECT_EQ(explained.kernel, GetParam().other) << explained.text;
    EXPECT_TRUE(check_row(p, any()));
  }
}

// One input off its alignment is enough; out off its own is not.
TEST_P(AutoOnDevice, LooksAtEveryInputsAlignment) {
  const Problem p = problem("B2 H4/2 M33 N50 D64 causal");
  for (int who = 0; who < 4; ++who) {
    for (const Off& off : kOff) {
      SCOPED_TRACE("tensor " + std::to_string(who) + ", " + off.what);
      Shift shifts[4];
      shifts[who] = off.shift;
      const PlacedCall call(p, shifts);
      const fa_forward_args args = call.args();
      EXPECT_EQ(kernel_of(args, any()), who == 3 ? GetParam().aligned : GetParam().unaligned);
      ASSERT_EQ(run_args(args, any()), FA_OK) << fa_last_error();
      EXPECT_EQ(call.check(), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AutoOnDevice, testing::ValuesIn(kBest),
                         [](const testing::TestParamInfo<Best>& of) {
                           return std::string("device_") + name_of(of.param.dtype);
                         });

}  // namespace
}  // namespace fa::test
