/// The stated limits of rows whose tiles hold one head size, or whose copies want aligned rows: what they
/// reject, in which words, who stands in for them, and what is no reason to reject. And what Auto takes on
/// either side.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/forward/rows.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

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

// Empty where there is no such row.
std::string title(const std::string& kernel) {
  for (const Row& row : forward_rows()) {
    if (row.kernel == kernel) return std::string(name_of(row.version)) + " (" + kernel + ")";
  }
  return "";
}

std::string title(const Row& row) {
  return title(row.kernel);
}

// Which it must be is CApi.TheStandInsOfTheTable's. Empty: none.
std::string stand_in_of(const std::string& kernel) {
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    if (fa_kernel_info_get(i, &info) != FA_OK) throw std::runtime_error(fa_last_error());
    if (kernel == info.name) return info.stand_in == nullptr ? "" : info.stand_in;
  }
  throw std::invalid_argument("no row " + kernel);
}

// Bytes to whose multiples rows of q, k and v must be aligned.
std::int64_t alignment_of(const std::string& kernel) {
  for (const Row& row : forward_rows()) {
    if (row.kernel != kernel) continue;
    if (row.version <= Version::V3) return 1;
    return row.version == Version::V7 ? 4 : 16;
  }
  throw std::invalid_argument("no row " + kernel);
}

/// Code for compute capability 9.0 runs on the device.
bool on_hopper() {
#if defined(FLASHATTN_TEST_CUDA)
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major == 9;
#else
  return false;
#endif
}

class Limits : public RowSuite {
 protected:
  void SetUp() override {
    RowSuite::SetUp();
    if (!IsSkipped() && row().version == Version::V8 && !on_hopper()) {
      GTEST_SKIP() << "skipped: the device's compute capability is not 9.0";
    }
  }
  std::string stand_in() const { return stand_in_of(row().kernel); }
  std::int64_t alignment() const { return alignment_of(row().kernel); }
  /// The row, or the first of its stand-ins, that takes rows aligned to so many bytes; empty: none.
  std::string kernel_for_alignment(std::int64_t bytes) const {
    std::string kernel = row().kernel;
    while (!kernel.empty() && bytes < alignment_of(kernel)) kernel = stand_in_of(kernel);
    return kernel;
  }
  std::string in_place_of(const std::string& kernel) const {
    return "runs: " + title(kernel) + " in place of " + title(row()) + ",";
  }
  /// The row rejects the problem in these words, and another serves.
  void expect_stand_in(const Problem& p, const std::string& reason, const std::string& kernel) const {
    const Explanation e = explain_problem(p, row());
    EXPECT_EQ(e.kernel, kernel);
    EXPECT_NE(e.text.find(in_place_of(kernel)), std::string::npos) << e.text;
    EXPECT_NE(e.text.find("  " + title(row()) + ": " + reason + "\n"), std::string::npos) << e.text;
    EXPECT_TRUE(check_row(p, row()));
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
      EXPECT_NE(explained.text.find(in_place_of("v2_flash2_fp32")), std::string::npos) << explained.text;
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
      {"D133", "takes D and Dv that are even, but D = 133 and Dv = 133"},
      {"D64/61", "takes D and Dv that are even, but D = 64 and Dv = 61"},
      {"D63/64", "takes D and Dv that are even, but D = 63 and Dv = 64"},
  };
  for (const auto& [sizes, reason] : heads) {
    const Problem p = problem(std::string("B2 H4/2 M40 N70 causal ") + sizes);
    SCOPED_TRACE(to_string(p));
    expect_stand_in(p, reason, stand_in());
  }
  // Copies of 8 and of 4 bytes. In bshd rows of out are aligned for the first head, and end within 16 bytes.
  for (const char* sizes : {"D100", "D98", "D132", "D250", "D64/60", "D62/64", "D2", "D100 padded",
                            "D98 bshd", "D64/60 bshd", "D36/26 out-fp32"}) {
    for (const char* rest : {"B2 H4/2 M40 N170 causal ", "B1 H4 M150 N300 window:90,20 scale:-0.3 "}) {
      const Problem p = problem(std::string(rest) + sizes);
      SCOPED_TRACE(to_string(p));
      EXPECT_EQ(explain_problem(p, row()).kernel, row().kernel);
      EXPECT_TRUE(check_row(p, row()));
    }
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
        const std::string runs = kernel_for_alignment(by * width);
        const bool rejected = runs != row().kernel;
        const std::string said = title(row()) + ": needs rows aligned to " + std::to_string(alignment()) +
                                 " bytes, but rows of " + names[who] + " are aligned to " +
                                 std::to_string(by * width);
        const std::string text = explain_text(args, row().version);
        if (!runs.empty()) {
          EXPECT_EQ(kernel_of(args, row()), runs);
          EXPECT_EQ(text.find(in_place_of(runs)) != std::string::npos, rejected) << text;
          EXPECT_EQ(text.find("  " + said + "\n") != std::string::npos, rejected) << text;
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
  if (row().version == Version::V8) GTEST_SKIP() << "V8 stores 16 bytes at a time: OutOfV8IsAligned";
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

// Rows that end anywhere, in aligned memory: what lies behind a row of an input, NaN, counts for nothing, and
// what lies behind a row of out stays.
TEST_P(Limits, RowsThatEndAnywhere) {
  if (row().version < Version::V7) GTEST_SKIP() << "the row takes one head size";
  const struct {
    std::int64_t D, Dv;
  } sizes[] = {{1, 1},     {2, 6},     {33, 63},   {60, 60},   {61, 61},   {98, 100},
               {127, 125}, {130, 126}, {134, 129}, {150, 150}, {187, 190}, {190, 191},
               {193, 195}, {250, 250}, {251, 253}, {254, 255}};
  for (const auto& [D, Dv] : sizes) {
    for (const char* line : {"B2 H4/2 M70 N130 causal", "B1 H1 M1 N1"}) {
      Problem p = problem(line);
      p.D = D, p.Dv = Dv;
      SCOPED_TRACE(to_string(p));
      const auto up = [](std::int64_t length) { return (length + 7) / 8 * 8; };
      const auto aligned = [&](std::int64_t heads, std::int64_t rows, std::int64_t length) {
        const std::int64_t pitch = up(length);
        return Array(Side::device, p.dtype, {p.B, heads, rows, length},
                     {heads * rows * pitch, rows * pitch, pitch}, pitch - length + 8);
      };
      Array q = aligned(p.H, p.M, D), k = aligned(p.Hk, p.N, D), v = aligned(p.Hk, p.N, Dv),
            out = aligned(p.H, p.M, Dv);
      for (Array* array : {&q, &k, &v, &out}) array->fill(0xff);
      const Inputs inputs = make_inputs(p);
      q.set(inputs.q), k.set(inputs.k), v.set(inputs.v);
      Outputs<float> got = {{}, std::vector<float>(static_cast<std::size_t>(p.B * p.H * p.M))};
      const Memory lse(Side::device, got.lse.size() * sizeof(float));
      fa_forward_args args = make_args(q, k, v, out);
      args.mask = {p.mask.left, p.mask.right, static_cast<std::int32_t>(p.mask.alignment), 0};
      args.lse = static_cast<float*>(lse.data());
      if (row().version == Version::V8 && Dv <= 128) {
        EXPECT_EQ(kernel_of(args, row()), row().kernel);
      }
      ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
      got.out = out.get();
      lse.read(0, got.lse.data(), got.lse.size() * sizeof(float));
      EXPECT_EQ(check_forward(p, inputs, got), "");
      const std::vector<unsigned char> bytes = out.bytes();
      const std::size_t pitch = static_cast<std::size_t>(up(Dv)) * 2,
                        length = static_cast<std::size_t>(Dv) * 2;
      const std::size_t end = got.lse.size() * pitch;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool behind = i >= end || i % pitch >= length;
        ASSERT_TRUE(!behind || bytes[i] == 0xff) << "byte " << i % pitch << " of row " << i / pitch;
      }
    }
  }
}

// ---- V8
// ----------------------------------------------------------------------------------------------------

class LimitsOfV8 : public Limits {
 protected:
  std::string v7() const { return stand_in(); }
  std::string v2() const { return stand_in_of(v7()); }
  std::string v7_reason(const std::string& reason) const { return "  " + title(v7()) + ": " + reason + "\n"; }
};

// Tiles of every size of head, and heads that do not fill them.
TEST_P(LimitsOfV8, TakesHeadSizes) {
  for (const char* sizes :
       {"D8",     "D64",    "D72",    "D80",     "D96",     "D104",     "D128",    "D136",
        "D160",   "D192",   "D200",   "D248",    "D256",    "D192/128", "D192/72", "D136/64",
        "D64/40", "D40/64", "D64/72", "D128/64", "D64/128", "D8/192",   "D256/64", "D64/256"}) {
    for (const char* rest :
         {"B2 H4/2 M40 N170 causal ", "B1 H4 M450 N300 window:90,20 scale:0.3 ", "B3 H5/1 M257 N129 bshd "}) {
      const Problem p = problem(std::string(rest) + sizes);
      SCOPED_TRACE(to_string(p));
      EXPECT_EQ(explain_problem(p, row()).kernel, row().kernel);
      EXPECT_TRUE(check_row(p, row()));
    }
  }
}

TEST_P(LimitsOfV8, LeavesTheRestToV7) {
  const struct {
    const char* line;
    const char* reason;
  } cases[] = {
      {"B2 H4/2 M40 N70 D64 causal scale:0", "takes a scale above 0, but scale = 0.000000"},
      {"B2 H4/2 M40 N70 D128 causal scale:-0.125", "takes a scale above 0, but scale = -0.125000"},
      {"B2 H4/2 M40 N70 D64 causal out-fp32", "writes out in the type of q, k and v alone"},
      {"B2 H4/2 M40 N70 D192/128 causal out-fp32", "writes out in the type of q, k and v alone"},
      {"B2 H4/2 M40 N70 D100 causal", "needs rows aligned to 16 bytes, but rows of q are aligned to 8"},
      {"B2 H4/2 M40 N70 D98", "needs rows aligned to 16 bytes, but rows of q are aligned to 4"},
      {"B2 H4/2 M40 N70 D64/60", "needs rows aligned to 16 bytes, but rows of v are aligned to 8"},
      {"B2 H4/2 M40 N70 D64 broadcast", "copies by tensor map, which takes no batch stride of 0 (k)"},
      {"B1 H4/2 M40 N70 D64 broadcast", "copies by tensor map, which takes no head stride of 0 (k)"},
  };
  for (const auto& [line, reason] : cases) {
    const Problem p = problem(line);
    SCOPED_TRACE(to_string(p));
    expect_stand_in(p, reason, v7());
  }
  const char* const other = row().dtype == Dtype::float16 ? "out-bf16" : "out-fp16";
  expect_stand_in(problem(std::string("B2 H4/2 M40 N70 D64 ") + other),
                  "writes out in the type of q, k and v alone", v7());
}

// V7 rejects it too, and V2 serves.
TEST_P(LimitsOfV8, LeavesWhatV7RejectsToV2) {
  const struct {
    const char* line;
    const char* reason;
    const char* v7_reason;
  } cases[] = {
      {"B2 H4/2 M40 N70 D97 causal", "needs rows aligned to 16 bytes, but rows of q are aligned to 2",
       "takes D and Dv that are even, but D = 97 and Dv = 97"},
      {"B2 H4/2 M40 N70 D64 unaligned", "needs rows aligned to 16 bytes, but rows of q are aligned to 2",
       "needs rows aligned to 4 bytes, but rows of q are aligned to 2"},
      {"B2 H4/2 M40 N70 D63 scale:-1", "takes a scale above 0, but scale = -1.000000",
       "takes D and Dv that are even, but D = 63 and Dv = 63"},
  };
  for (const auto& [line, reason, of_v7] : cases) {
    const Problem p = problem(line);
    SCOPED_TRACE(to_string(p));
    expect_stand_in(p, reason, v2());
    const std::string text = explain_problem(p, row()).text;
    EXPECT_NE(text.find(v7_reason(of_v7)), std::string::npos) << text;
  }
}

TEST_P(LimitsOfV8, NobodyTakesLargerHeads) {
  for (const auto& [sizes, numbers] : {std::pair{"D264", "D = 264 and Dv = 264"},
                                       {"D64/264", "D = 64 and Dv = 264"},
                                       {"D264/64", "D = 264 and Dv = 64"}}) {
    const Problem p = problem(std::string("B1 H1 M4 N4 ") + sizes);
    SCOPED_TRACE(to_string(p));
    const Explanation e = explain_problem(p, row());
    EXPECT_FALSE(e.runs);
    const std::string reason = std::string("takes D and Dv up to 256, but ") + numbers;
    EXPECT_NE(e.text.find("  " + title(row()) + ": " + reason + "\n"), std::string::npos) << e.text;
    EXPECT_NE(e.text.find(v7_reason(reason)), std::string::npos) << e.text;
    EXPECT_NE(e.text.find("  " + title(v2()) + ": "), std::string::npos) << e.text;
    EXPECT_FALSE(check_row(p, row()));
  }
}

TEST_P(LimitsOfV8, OutOfV8IsAligned) {
  const Problem p = problem("B2 H4/2 M70 N50 D64 causal");
  for (const Off& off : kOff) {
    for (const std::int64_t by : {1, 2, 4}) {
      SCOPED_TRACE(std::string(off.what) + " " + std::to_string(by) + " elements off");
      const PlacedCall call(p, {{}, {}, {}, times(off.shift, by)});
      const fa_forward_args args = call.args();
      const std::string text = explain_text(args, row().version);
      EXPECT_EQ(kernel_of(args, row()), v7());
      EXPECT_NE(text.find("  " + title(row()) +
                          ": needs rows aligned to 16 bytes, but rows of out are aligned to " +
                          std::to_string(2 * by) + "\n"),
                std::string::npos)
          << text;
      ASSERT_EQ(run_args(args, row()), FA_OK) << fa_last_error();
      EXPECT_EQ(call.check(), "");
    }
  }
}

// Each of q, k and v, by each of its strides.
TEST_P(LimitsOfV8, StridesThatATensorMapDoesNotTake) {
  const char* const dimensions[] = {"batch", "head", "sequence"};
  constexpr std::int64_t kTooFar = std::int64_t{1} << 39;
  const PlacedCall call(problem("B2 H4/2 M33 N50 D64"), {});
  for (int dim = 0; dim < 3; ++dim) {
    for (const std::int64_t stride : {std::int64_t{0}, kTooFar}) {
      for (const char* name : {"q", "k", "v"}) {
        SCOPED_TRACE(std::string(name) + ", " + dimensions[dim] + " stride " + std::to_string(stride));
        fa_forward_args args = call.args();  // explained, not run
        fa_tensor& tensor = *name == 'q' ? args.q : *name == 'k' ? args.k : args.v;
        tensor.stride[dim] = stride;
        const std::string text = explain_text(args, row().version);
        EXPECT_NE(text.find("  " + title(row()) + ": copies by tensor map, which takes no " +
                            dimensions[dim] + " stride of " + std::to_string(stride) + " (" + name + ")\n"),
                  std::string::npos)
            << text;
        EXPECT_EQ(kernel_of(args, row()), v7());
        tensor.stride[dim] = kTooFar - 8;
        EXPECT_EQ(kernel_of(args, row()), row().kernel);
      }
    }
  }
}

// A stride over one index, or of a tensor without elements, is no stride.
TEST_P(LimitsOfV8, StridesOfNothingMayBe0) {
  const Array one(Side::device, row().dtype, {1, 1, 1, kD}, {0, 0, 0});
  const Array out(Side::device, row().dtype, {1, 1, 1, kD}, {0, 0, 0});
  EXPECT_EQ(kernel_of(make_args(one, one, one, out), row()), row().kernel);
  for (const char* line : {"B2 H4/2 M33 N0 D64", "B2 H4/2 M33 N0 D64 bshd"}) {
    const Problem p = problem(line);
    EXPECT_EQ(explain_problem(p, row()).kernel, row().kernel) << line;
    EXPECT_TRUE(check_row(p, row())) << line;
  }
}

std::vector<Row> rows_from(Version first, Version last) {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [=](const Row& row) { return row.version < first || row.version > last; });
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, Limits, testing::ValuesIn(rows_from(Version::V3, Version::V8)), RowName());
INSTANTIATE_TEST_SUITE_P(Rows, LimitsOfV8, testing::ValuesIn(rows_from(Version::V8, Version::V8)), RowName());

// Where a row and its stand-ins cannot run, explain and the error name each with its own reason, in order.
class StandIns : public testing::TestWithParam<Row> {};

void expect_whole_chain(const std::string& text, const Row& row) {
  std::size_t at = 0;
  for (std::string kernel = row.kernel; !kernel.empty(); kernel = stand_in_of(kernel)) {
    const std::size_t found = text.find("  " + title(kernel) + ": ", at);
    ASSERT_NE(found, std::string::npos) << kernel << " is not in its place in:\n" << text;
    at = found + 1;
  }
}

TEST_P(StandIns, OfHostMemoryAreNamedToTheEnd) {
  const Row& row = GetParam();
  const Array q(Side::host, row.dtype, {1, 1, 4, kD}), out(Side::host, row.dtype, {1, 1, 4, kD});
  const fa_forward_args args = make_args(q, q, q, out);
  const std::string text = explain_text(args, row.version);
  EXPECT_NE(text.find("nothing runs\n"), std::string::npos) << text;
  expect_whole_chain(text, row);
  EXPECT_EQ(fa_forward(&args, static_cast<fa_version>(row.version), nullptr), FA_UNSUPPORTED);
  expect_whole_chain(fa_last_error(), row);
}

std::vector<Row> rows_with_stand_ins() {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [](const Row& row) { return stand_in_of(row.kernel).empty(); });
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, StandIns, testing::ValuesIn(rows_with_stand_ins()),
                         [](const testing::TestParamInfo<Row>& of) { return "of_" + of.param.kernel; });

// A device that V8 has no code for, or a build without it.
class V8Elsewhere : public testing::TestWithParam<Row> {};

TEST_P(V8Elsewhere, LeavesEverythingToV7) {
  const Row& row = GetParam();
  if (!have_device()) GTEST_SKIP() << "skipped: no CUDA device";
  if (row.built && on_hopper()) GTEST_SKIP() << "skipped: the row's own code runs on the device";
  Problem p = parse_problem("B2 H4/2 M40 N70 D64 causal");
  p.dtype = row.dtype;
  const Explanation e = explain_problem(p, row);
  const std::string why = row.built ? "was built for 90a" : "this build left its code out";
  EXPECT_NE(e.text.find("  " + title(row) + ": " + why), std::string::npos) << e.text;
  if (!e.runs) {
    expect_whole_chain(e.text, row);
    return;
  }
  EXPECT_NE(e.text.find(" in place of " + title(row) + ","), std::string::npos) << e.text;
  EXPECT_TRUE(check_row(p, row));
}

INSTANTIATE_TEST_SUITE_P(Rows, V8Elsewhere, testing::ValuesIn(rows_from(Version::V8, Version::V8)),
                         RowName());

// ---- Auto
// --------------------------------------------------------------------------------------------------

struct Best {
  const char* aligned;    // D64, all rows aligned to 16 bytes
  const char* other;      // another head size
  const char* beyond_v8;  // D64, with what V8 leaves to V7
  const char* unaligned;  // D64, rows of an input
};

Best best_of(Dtype dtype) {
  if (dtype == Dtype::float32) {
    return {"v4_vectorized_fp32", "v2_flash2_fp32", "v4_vectorized_fp32", "v3_warp_local"};
  }
  const bool half = dtype == Dtype::float16;
  const char* const v7 = half ? "v7_ampere_fp16" : "v7_ampere_bf16";
  const char* const v8 = half ? "v8_hopper_fp16" : "v8_hopper_bf16";
  const char* const first = on_hopper() ? v8 : v7;
  return {first, first, v7, half ? "v2_flash2_fp16" : "v2_flash2_bf16"};
}

class AutoOnDevice : public testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    for (const Row& row : forward_rows_of(GetParam())) {
      if (!row.built) GTEST_SKIP() << "skipped: this build left out " << row.kernel;
    }
    if (!have_device()) GTEST_SKIP() << "skipped: no CUDA device";
  }
  Row any() const { return {Version::Auto, GetParam(), Side::device, true, "Auto"}; }
  Best best() const { return best_of(GetParam()); }
  void expect_kernel(const char* line, const char* kernel) const {
    const Problem p = problem(line);
    const Explanation explained = explain_problem(p, any());
    EXPECT_EQ(explained.kernel, kernel) << explained.text;
    EXPECT_TRUE(check_row(p, any()));
  }
  Problem problem(const char* line) const {
    Problem p = parse_problem(line);
    p.dtype = GetParam();
    return p;
  }
};

TEST_P(AutoOnDevice, TakesTheFastestRowThatAccepts) {
  for (const char* line : {"B2 H4/2 S160 D64 causal", "B1 H2 M33 N97 D64 bshd", "B2 H4/2 S97 D64 packed",
                           "B2 H2 S65 D64 padded", "B1 H1 M5 N0 D64"}) {
    expect_kernel(line, best().aligned);
  }
  expect_kernel("B2 H2 S65 D64 broadcast", best().beyond_v8);
  for (const char* line : {"B2 H4/2 S160 D64 unaligned causal", "B1 H2 M33 N97 D64 unaligned"}) {
    expect_kernel(line, best().unaligned);
  }
  for (const char* line : {"B2 H4/2 M160 N170 D80 causal", "B1 H2 M33 N97 D64/40"}) {
    expect_kernel(line, best().other);
  }
  if (GetParam() == Dtype::float32) return;
  // V8 leaves these to V7.
  for (const char* line : {"B2 H4/2 M160 N170 D64 causal scale:-0.2", "B1 H2 M33 N97 D64 scale:0",
                           "B1 H2 M33 N97 D64 out-fp32", "B1 H2 M33 N97 D100"}) {
    expect_kernel(line, best().beyond_v8);
  }
}

// One input off its alignment is enough; out off its own counts for V8 alone.
TEST_P(AutoOnDevice, LooksAtEveryInputsAlignment) {
  const Problem p = problem("B2 H4/2 M33 N50 D64 causal");
  for (int who = 0; who < 4; ++who) {
    for (const Off& off : kOff) {
      SCOPED_TRACE("tensor " + std::to_string(who) + ", " + off.what);
      Shift shifts[4];
      shifts[who] = off.shift;
      const PlacedCall call(p, shifts);
      const fa_forward_args args = call.args();
      EXPECT_EQ(kernel_of(args, any()), who == 3 ? best().beyond_v8 : best().unaligned);
      ASSERT_EQ(run_args(args, any()), FA_OK) << fa_last_error();
      EXPECT_EQ(call.check(), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AutoOnDevice,
                         testing::Values(Dtype::float32, Dtype::float16, Dtype::bfloat16),
                         [](const testing::TestParamInfo<Dtype>& of) {
                           return std::string("device_") + name_of(of.param);
                         });

}  // namespace
}  // namespace fa::test
