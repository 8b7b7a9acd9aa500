/// The instruments of all other tests: a fault here would hide faults there.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/compare.hpp"
#include "tests/support/layout.hpp"
#include "tests/support/memory.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/run.hpp"

namespace fa::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- the grammar ---------------------------------------------------------------------------------------

TEST(ProblemGrammar, ReadsEveryWord) {
  const Problem p = parse_problem(
      " bf16 out-fp32\tB4 H12/4 M128 N256 D192/128 window-top-left:-1,7 scale:-0.125 padded large no-lse "
      "threads:2 seed 7 ");
  EXPECT_EQ(p.dtype, Dtype::bfloat16);
  EXPECT_EQ(p.out_dtype(), Dtype::float32);
  EXPECT_EQ(p.B, 4);
  EXPECT_EQ(p.H, 12);
  EXPECT_EQ(p.Hk, 4);
  EXPECT_EQ(p.M, 128);
  EXPECT_EQ(p.N, 256);
  EXPECT_EQ(p.D, 192);
  EXPECT_EQ(p.Dv, 128);
  EXPECT_EQ(p.mask.left, -1);
  EXPECT_EQ(p.mask.right, 7);
  EXPECT_EQ(p.mask.alignment, Alignment::top_left);
  EXPECT_EQ(p.scale, -0.125f);
  EXPECT_EQ(p.layout, Layout::padded);
  EXPECT_EQ(p.data, Data::large);
  EXPECT_FALSE(p.lse);
  EXPECT_EQ(p.threads, 2);
  EXPECT_EQ(p.seed, 7u);
}

TEST(ProblemGrammar, DefaultsAndShortForms) {
  EXPECT_EQ(parse_problem("fp32"), Problem{});
  const Problem p = parse_problem("H6 S33 D80 causal seed:18446744073709551615");
  EXPECT_EQ(p.Hk, 6);
  EXPECT_EQ(p.M, 33);
  EXPECT_EQ(p.N, 33);
  EXPECT_EQ(p.Dv, 80);
  EXPECT_EQ(p.mask.right, 0);
  EXPECT_EQ(p.seed, 18446744073709551615u);
  EXPECT_EQ(parse_problem("window:-1,0"), parse_problem("causal"));
  EXPECT_EQ(parse_problem("window:9223372036854775807,0").mask.left,
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(to_string(parse_problem("seed:7 bshd D64 causal S2048 H12/4 B4 fp16")),
            "fp16 B4 H12/4 M2048 N2048 D64 causal bshd seed 7");
}

TEST(ProblemGrammar, RandomProblemsSurviveTheRoundTrip) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Problem p = random_problem(seed);
    const std::string line = to_string(p);
    ASSERT_EQ(parse_problem(line), p) << line;
    ASSERT_EQ(to_string(parse_problem(line)), line);
  }
}

TEST(ProblemGrammar, EqualityLooksAtEveryField) {
  const Problem base = parse_problem("fp16 B2 H4 M8 N8 D16");
  for (const char* word : {"out-fp32", "causal", "causal-top-left", "window:1,1", "window-top-left:-1,-1",
                           "scale:0", "bshd", "zero-q", "no-lse", "threads:1", "seed 2"}) {
    const Problem other = parse_problem(to_string(base) + " " + word);
    EXPECT_FALSE(other == base) << word;
    EXPECT_NE(to_string(other), to_string(base)) << word;
  }
  for (const char* line : {"bf16 B2 H4 M8 N8 D16", "fp16 B3 H4 M8 N8 D16", "fp16 B2 H8/4 M8 N8 D16",
                           "fp16 B2 H4/2 M8 N8 D16", "fp16 B2 H4 M9 N8 D16", "fp16 B2 H4 M8 N9 D16",
                           "fp16 B2 H4 M8 N8 D32/16", "fp16 B2 H4 M8 N8 D16/32"}) {
    EXPECT_FALSE(parse_problem(line) == base) << line;
  }
}

TEST(ProblemGrammar, ErrorsNameTheWord) {
  const struct {
    const char *line, *word;
  } cases[] = {
      {"fp16 bogus", "bogus"},
      {"fp64", "fp64"},
      {"S1073741825", "S1073741825"},
      {"B1 H1 D99999999999", "D99999999999"},
      {"out-fp8", "out-fp8"},
      {"fp16 bf16", "bf16"},
      {"fp16 fp16", "fp16"},
      {"out-fp16 out-bf16", "out-bf16"},
      {"B1 B2", "B2"},
      {"S64 M32", "M32"},
      {"N3 S64", "S64"},
      {"causal full", "full"},
      {"bhsd bshd", "bshd"},
      {"normal large", "large"},
      {"no-lse no-lse", "no-lse"},
      {"scale:1 scale:1", "scale:1"},
      {"seed 1 seed:2", "seed:2"},
      {"threads:1 threads:1", "threads:1"},
      {"B", "'B'"},
      {"Bx", "Bx"},
      {"B1x", "B1x"},
      {"B-1", "B-1"},
      {"B+1", "B+1"},
      {"B1.5", "B1.5"},
      {"H0", "H0"},
      {"H4/0", "H4/0"},
      {"H4/", "H4/"},
      {"H4/2/1", "H4/2/1"},
      {"H33/2", "H33/2"},
      {"D0", "D0"},
      {"D64/0", "D64/0"},
      {"M9223372036854775808", "M9223372036854775808"},
      {"window:1", "window:1"},
      {"window:1,", "window:1,"},
      {"window:-2,0", "window:-2,0"},
      {"window:0,-2", "window:0,-2"},
      {"window:1,2,3", "window:1,2,3"},
      {"window:9223372036854775808,0", "window:9223372036854775808,0"},
      {"scale:", "scale:"},
      {"scale:nan", "scale:nan"},
      {"scale:inf", "scale:inf"},
      {"scale:1e99", "scale:1e99"},
      {"scale:0.5f", "scale:0.5f"},
      {"threads:-1", "threads:-1"},
      {"threads:99999999999", "threads:99999999999"},
      {"seed", "seed"},
      {"seed x7", "x7"},
      {"seed:-1", "seed:-1"},
      {"seed 18446744073709551616", "18446744073709551616"},
      {"packed M3 N4", "packed"},
      {"packed S3 D64/32", "packed"},
      {"B2147483647 H2147483647 S1 D64", "B2147483647"},
  };
  for (const auto& c : cases) {
    try {
      parse_problem(c.line);
      ADD_FAILURE() << c.line << " was accepted";
    } catch (const std::invalid_argument& error) {
      EXPECT_TRUE(contains(error.what(), c.word)) << c.line << ": " << error.what();
    }
  }
  EXPECT_THROW(parse_problem(""), std::invalid_argument);
  EXPECT_THROW(parse_problem(" \t"), std::invalid_argument);
}

class ProblemFile : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string path_ = testing::TempDir() + "flashattn_support_test.txt";
};

TEST_F(ProblemFile, NamesCommentsAndBlankLines) {
  write("# all of it\n\nfp16 B2   # a comment\n  P15-a: fp32 scale:0.5 window:1,1\n");
  const std::vector<NamedProblem> problems = read_problem_file(path_);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].name, "");
  EXPECT_EQ(problems[0].problem, parse_problem("fp16 B2"));
  EXPECT_EQ(problems[1].name, "P15-a");
  EXPECT_EQ(problems[1].problem, parse_problem("fp32 scale:0.5 window:1,1"));
}

TEST_F(ProblemFile, ErrorsNameFileAndLine) {
  write("fp16\n\nname: fp16 bogus\n");
  const std::string text = message_of([&] { read_problem_file(path_); });
  EXPECT_TRUE(contains(text, path_ + ":3:")) << text;
  EXPECT_TRUE(contains(text, "bogus")) << text;
  write("name:\n");
  EXPECT_THROW(read_problem_file(path_), std::runtime_error);
  EXPECT_THROW(read_problem_file(path_ + ".missing"), std::runtime_error);
}

TEST(RandomProblem, CoversWhatItShould) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Problem p = random_problem(seed);
    ASSERT_EQ(p, random_problem(seed));
    ASSERT_EQ(p.seed, seed);
    ASSERT_LE(p.flops() / 2, 50e6) << to_string(p);
    ASSERT_LE(std::max({p.M, p.N, p.D, p.Dv}), 300) << to_string(p);
    seen.insert(name_of(p.dtype));
    seen.insert("out " + std::string(name_of(p.out_dtype())) + " from " + name_of(p.dtype));
    seen.insert("layout " + std::to_string(static_cast<int>(p.layout)));
    seen.insert("data " + std::to_string(static_cast<int>(p.data)));
    seen.insert("group " + std::to_string(p.H / p.Hk));
    seen.insert(p.M < p.N ? "M<N" : p.M > p.N ? "M>N" : "M=N");
    for (const std::int64_t d : {p.D, p.Dv}) seen.insert("D " + std::to_string(d));
    for (const std::int64_t s : {p.M, p.N}) seen.insert("S " + std::to_string(s));
    if (p.D != p.Dv) seen.insert("Dv");
    if (p.B == 0) seen.insert("B=0");
    if (p.M == 0) seen.insert("M=0");
    if (p.N == 0) seen.insert("N=0");
    if (!p.lse) seen.insert("no lse");
    seen.insert(!p.scale        ? "default scale"
                : *p.scale == 0 ? "scale 0"
                : *p.scale < 0  ? "scale<0"
                                : "scale>0");
    if (p.mask.left == -1 && p.mask.right == -1) seen.insert("full");
    if (p.mask.left > 0x7ffffffe || p.mask.right > 0x7ffffffe) seen.insert("huge bound");
    if (p.mask.left >= 0 && p.mask.right >= 0) {
      seen.insert(p.mask.alignment == Alignment::top_left ? "window top-left" : "window");
    }
    if (p.mask.left == -1 && p.mask.right == 0) {
      seen.insert(p.mask.alignment == Alignment::top_left ? "causal top-left" : "causal");
    }
    for (std::int64_t i = 0; i < p.M && p.N > 0; ++i) {
      if (visible_keys(p, i).last == 0) seen.insert("empty row");
    }
  }
  for (const char* what : {"float32",
                           "float16",
                           "bfloat16",
                           "out float32 from float16",
                           "out float32 from bfloat16",
                           "out float16 from float32",
                           "out bfloat16 from float32",
                           "layout 0",
                           "layout 1",
                           "layout 2",
                           "layout 3",
                           "layout 4",
                           "layout 5",
                           "data 0",
                           "data 1",
                           "data 2",
                           "group 1",
                           "group 2",
                           "group 3",
                           "group 8",
                           "M<N",
                           "M>N",
                           "M=N",
                           "Dv",
                           "B=0",
                           "M=0",
                           "N=0",
                           "no lse",
                           "default scale",
                           "scale 0",
                           "scale<0",
                           "scale>0",
                           "huge bound",
                           "full",
                           "window",
                           "window top-left",
                           "causal",
                           "causal top-left",
                           "empty row",
                           "D 1",
                           "D 16",
                           "D 32",
                           "D 63",
                           "D 64",
                           "D 80",
                           "D 96",
                           "D 128",
                           "D 129",
                           "S 1",
                           "S 2",
                           "S 7",
                           "S 15",
                           "S 17",
                           "S 31",
                           "S 33",
                           "S 63",
                           "S 65",
                           "S 127",
                           "S 129",
                           "S 191",
                           "S 193",
                           "S 250",
                           "S 257"}) {
    EXPECT_EQ(seen.count(what), 1u) << what;
  }
}

// ---- the mask rule -------------------------------------------------------------------------------------

/// docs/conventions.md, rules 2 and 3, word for word. p - j and j - p are small; bounds may be 2^63 - 1.
bool sees(const Problem& problem, std::int64_t i, std::int64_t j) {
  const std::int64_t p = problem.mask.alignment == Alignment::top_left ? i : i + problem.N - problem.M;
  return (problem.mask.left == -1 || p - j <= problem.mask.left) &&
         (problem.mask.right == -1 || j - p <= problem.mask.right);
}

TEST(VisibleKeys, IsTheRuleForEveryPair) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t M : {1, 2, 5, 9}) {
    for (const std::int64_t N : {0, 1, 2, 5, 9}) {
      for (const std::int64_t left :
           {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{4}, std::int64_t{20}, kHuge}) {
        for (const std::int64_t right :
             {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{4}, std::int64_t{20}, kHuge}) {
          for (const Alignment alignment : {Alignment::bottom_right, Alignment::top_left}) {
            Problem p;
            p.M = M;
            p.N = N;
            p.mask = Mask::window(left, right, alignment);
            double pairs = 0;
            for (std::int64_t i = 0; i < M; ++i) {
              const KeyRange keys = visible_keys(p, i);
              for (std::int64_t j = 0; j < N; ++j) {
                ASSERT_EQ(keys.first <= j && j < keys.last, sees(p, i, j))
                    << to_string(p) << " row " << i << " key " << j;
                pairs += sees(p, i, j);
              }
              ASSERT_TRUE(0 <= keys.first && keys.first <= keys.last && keys.last <= N);
            }
            ASSERT_EQ(p.visible_pairs(), pairs);
            std::int64_t next = 0;
            for (const auto& [first, last] : even_stretches(p)) {
              ASSERT_TRUE(first == next && first <= last);
              for (std::int64_t i = first; i <= last; ++i) {  // the ends enclose what lies between
                ASSERT_GE(visible_keys(p, i).first, visible_keys(p, first).first);
                ASSERT_LE(visible_keys(p, i).last,
                          std::max(visible_keys(p, first).last, visible_keys(p, last).last));
              }
              next = last + 1;
            }
            ASSERT_EQ(next, M);
          }
        }
      }
    }
  }
}

TEST(VisibleKeys, ArePairsWithoutALoopOverRows) {
  EXPECT_EQ(parse_problem("S1073741824 causal").visible_pairs(), 0x1p59 + 0x1p29);
  EXPECT_EQ(parse_problem("M0 N5").visible_pairs(), 0);
}

TEST(VisibleKeys, CasesP01AndP15) {
  const auto keys = [](const char* line, std::int64_t row) {
    const KeyRange range = visible_keys(parse_problem(line), row);
    return std::pair(range.first, range.last);
  };
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(keys("M2048 N1024 causal", 1023), Range(0, 0));
  EXPECT_EQ(keys("M2048 N1024 causal", 1024), Range(0, 1));
  EXPECT_EQ(keys("M3 N128 causal", 0), Range(0, 126));
  EXPECT_EQ(keys("M3 N128 causal-top-left", 0), Range(0, 1));
  EXPECT_EQ(keys("M300 N100 window:-1,150", 49), Range(0, 0));
  EXPECT_EQ(keys("M300 N100 window:-1,150", 60), Range(0, 11));
  EXPECT_EQ(keys("M300 N100 window:-1,150", 299), Range(0, 100));
  EXPECT_EQ(keys("M100 N300 window:-1,2147483647", 0), Range(0, 300));
}

TEST(ProblemCounts, FlopsAndBytes) {
  EXPECT_EQ(parse_problem("fp16 B2 H4/2 M8 N16 D32").flops(), 4.0 * 2 * 4 * 8 * 16 * 32);
  EXPECT_EQ(parse_problem("S8 D1 causal").flops(), 4.0 * 36);
  EXPECT_EQ(parse_problem("S8 D3/1").flops(), 2.0 * 64 * 4);
  EXPECT_EQ(parse_problem("fp16 B2 H4/2 M8 N16 D32").bytes(),
            2.0 * (2 * 4 * 8 * 32 + 2 * 2 * 16 * 64 + 2 * 4 * 8 * 32) + 4.0 * 2 * 4 * 8);
  EXPECT_EQ(parse_problem("fp16 out-fp32 S4 D8 no-lse").bytes(), 2.0 * 3 * 32 + 4.0 * 32);
  EXPECT_EQ(parse_problem("fp16 B2 H2 S4 D8 no-lse broadcast").bytes(), 2.0 * (128 + 64 + 128));
}

// ---- rounding ------------------------------------------------------------------------------------------

std::uint32_t bits(float x) {
  std::uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}

TEST(RoundTo, KnownValues) {
  const auto half_of = [](float x) { return round_to(Dtype::float16, x); };
  EXPECT_EQ(half_of(1.0f), 1.0f);
  EXPECT_EQ(half_of(0x1.002p0f), 1.0f) << "a tie goes to the even 1";
  EXPECT_EQ(half_of(0x1.006p0f), 0x1.008p0f) << "a tie goes to the even 1 + 2/1024";
  EXPECT_EQ(half_of(0x1.002002p0f), 0x1.004p0f);
  EXPECT_EQ(half_of(65504.0f), 65504.0f);
  EXPECT_EQ(half_of(65519.996f), 65504.0f);
  EXPECT_EQ(half_of(65520.0f), kInf);
  EXPECT_EQ(half_of(-1e30f), -kInf);
  EXPECT_EQ(half_of(0x1p-24f), 0x1p-24f);
  EXPECT_EQ(half_of(0x1p-25f), 0.0f);
  EXPECT_EQ(half_of(0x1.8p-25f), 0x1p-24f);
  EXPECT_EQ(half_of(0x1.ffep-15f), 0x1p-14f) << "a subnormal rounds up to a normal";
  EXPECT_EQ(bits(half_of(-0x1p-30f)), 0x80000000u);

  const auto bfloat_of = [](float x) { return round_to(Dtype::bfloat16, x); };
  EXPECT_EQ(bfloat_of(0x1.01p0f), 1.0f);
  EXPECT_EQ(bfloat_of(0x1.03p0f), 0x1.04p0f);
  EXPECT_EQ(bfloat_of(0x1.fep127f), 0x1.fep127f);
  EXPECT_EQ(bfloat_of(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(bfloat_of(0x1p-133f), 0x1p-133f);
  EXPECT_EQ(bfloat_of(0x1p-134f), 0.0f);
  EXPECT_EQ(bfloat_of(0x1.8p-134f), 0x1p-133f);

  for (const Dtype dtype : {Dtype::float32, Dtype::float16, Dtype::bfloat16}) {
    EXPECT_TRUE(std::isnan(round_to(dtype, kNan)));
    EXPECT_EQ(round_to(dtype, kInf), kInf);
    EXPECT_EQ(round_to(dtype, -kInf), -kInf);
    EXPECT_EQ(bits(round_to(dtype, -0.0f)), 0x80000000u);
  }
  EXPECT_EQ(bits(round_to(Dtype::float32, 0x1.234566p-3f)), bits(0x1.234566p-3f));
}

/// Every pattern of the type stays itself; between each and the next, the midpoint goes to the even pattern
/// and its neighbours to the nearer. Holds the library's conversions and round_to to one truth, and to each
/// other.
template <class T>
void check_every_pattern(Dtype dtype, std::uint16_t infinity) {
  const auto value = [](unsigned pattern) {
    T t;
    t.bits = static_cast<std::uint16_t>(pattern);
    return static_cast<float>(t);
  };
  for (const std::uint16_t sign : {std::uint16_t{0}, std::uint16_t{0x8000}}) {
    const auto expect = [&](float x, unsigned pattern) {
      ASSERT_EQ(T(x).bits, pattern | sign) << x;
      ASSERT_EQ(bits(round_to(dtype, x)), bits(value(pattern | sign))) << x;
    };
    for (unsigned pattern = 0; pattern <= infinity; ++pattern) {
      expect(value(pattern | sign), pattern);
      if (pattern == infinity) break;
      const double here = static_cast<double>(value(pattern));
      // The step past the largest is as long as the one before it.
      const double next = pattern + 1u < infinity ? static_cast<double>(value(pattern + 1))
                                                  : 2 * here - static_cast<double>(value(pattern - 1));
      const float middle = static_cast<float>((here + next) / 2);
      ASSERT_EQ(static_cast<double>(middle), (here + next) / 2);
      expect(std::copysign(middle, sign != 0 ? -1.0f : 1.0f), pattern % 2 == 0 ? pattern : pattern + 1);
      expect(std::copysign(std::nextafter(middle, 0.0f), sign != 0 ? -1.0f : 1.0f), pattern);
      expect(std::copysign(std::nextafter(middle, kInf), sign != 0 ? -1.0f : 1.0f), pattern + 1);
    }
    for (unsigned pattern = infinity + 1u; pattern < 0x8000; ++pattern) {
      ASSERT_TRUE(std::isnan(value(pattern | sign)));
      ASSERT_TRUE(std::isnan(static_cast<float>(T(value(pattern | sign)))));
    }
  }
}

TEST(RoundTo, EveryHalf) {
  check_every_pattern<half>(Dtype::float16, 0x7c00);
}
TEST(RoundTo, EveryBfloat16) {
  check_every_pattern<bfloat16>(Dtype::bfloat16, 0x7f80);
}

TEST(RoundTo, LibraryConversionsAgreeOverAllExponents) {
  for (std::uint64_t i = 0; i < (std::uint64_t{1} << 32); i += 1009) {
    float x;
    const auto u = static_cast<std::uint32_t>(i);
    std::memcpy(&x, &u, sizeof x);
    if (std::isnan(x)) continue;
    ASSERT_EQ(bits(round_to(Dtype::float16, x)), bits(static_cast<float>(half(x)))) << x;
    ASSERT_EQ(bits(round_to(Dtype::bfloat16, x)), bits(static_cast<float>(bfloat16(x)))) << x;
  }
}

TEST(Half, KnownBits) {
  EXPECT_EQ(half(1.0f).bits, 0x3c00);
  EXPECT_EQ(half(-2.0f).bits, 0xc000);
  EXPECT_EQ(half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(half(0x1p-14f).bits, 0x0400);
  EXPECT_EQ(half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(half(1.0f / 3).bits, 0x3555);
  EXPECT_EQ(bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bfloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bfloat16(1.0f / 3).bits, 0x3eab);
  EXPECT_EQ(bfloat16(kInf).bits, 0x7f80);
}

// ---- data ----------------------------------------------------------------------------------------------

TEST(MakeInputs, SizesAndRounding) {
  const Problem p = parse_problem("fp16 B2 H4/2 M5 N7 D9/3 seed 3");
  const Inputs in = make_inputs(p);
  EXPECT_EQ(in.q.size(), 2u * 4 * 5 * 9);
  EXPECT_EQ(in.k.size(), 2u * 2 * 7 * 9);
  EXPECT_EQ(in.v.size(), 2u * 2 * 7 * 3);
  for (const auto* tensor : {&in.q, &in.k, &in.v}) {
    for (const float x : *tensor) ASSERT_EQ(x, round_to(Dtype::float16, x));
  }
  EXPECT_EQ(make_inputs(p).q, in.q);
  Problem other = p;
  other.seed = 4;
  EXPECT_NE(make_inputs(other).q, in.q);
  EXPECT_FALSE(std::equal(in.v.begin(), in.v.end(), in.k.begin()));
  EXPECT_FALSE(std::equal(in.k.begin(), in.k.end(), in.q.begin()));
}

TEST(MakeInputs, TheSameOnEveryPlatform) {
  const Inputs in = make_inputs(parse_problem("fp32 S4 D4 seed 7"));
  const float first[] = {0x1.ae1a38p+0f,  0x1.842ecp-1f,  -0x1.88463p+0f,
                         -0x1.648b68p+0f, -0x1.09836p+0f, -0x1.316968p+0f};
  EXPECT_TRUE(std::equal(std::begin(first), std::end(first), in.q.begin()))
      << testing::PrintToString(std::vector<float>(in.q.begin(), in.q.begin() + 4));
}

TEST(MakeInputs, UnitNormal) {
  const Inputs in = make_inputs(parse_problem("fp32 S1024 D256"));
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, across = 0;
  for (std::size_t i = 0; i < in.q.size(); ++i) {
    const double x = static_cast<double>(in.q[i]);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    if (i > 0) neighbours += x * static_cast<double>(in.q[i - 1]);
    across += x * static_cast<double>(in.k[i]);
  }
  const double count = static_cast<double>(in.q.size());  // 2^18: a mean has a standard error of 0.002
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.015);
  EXPECT_NEAR(fourth / count, 3, 0.2);
  EXPECT_NEAR(neighbours / count, 0, 0.01);
  EXPECT_NEAR(across / count, 0, 0.01);
}

TEST(MakeInputs, KindsOfData) {
  const Inputs normal = make_inputs(parse_problem("S8 D8")),
               large = make_inputs(parse_problem("S8 D8 large"));
  for (std::size_t i = 0; i < normal.q.size(); ++i) {
    ASSERT_EQ(large.q[i], 30 * normal.q[i]);
    ASSERT_EQ(large.k[i], 30 * normal.k[i]);
    ASSERT_EQ(large.v[i], normal.v[i]);
  }
  const Inputs zero_q = make_inputs(parse_problem("S8 D8 zero-q"));
  EXPECT_TRUE(std::all_of(zero_q.q.begin(), zero_q.q.end(), [](float x) { return x == 0; }));
  EXPECT_EQ(zero_q.k, normal.k);
  const Inputs broadcast = make_inputs(parse_problem("B2 H3 S8 D8 broadcast"));
  for (std::size_t i = 0; i < broadcast.k.size(); ++i) {
    ASSERT_EQ(broadcast.k[i], broadcast.k[i % 64]);
    ASSERT_EQ(broadcast.v[i], broadcast.v[i % 64]);
  }
}

// ---- the oracle ----------------------------------------------------------------------------------------

/// Straight from the definition, one (row, key) pair at a time.
Outputs<double> by_definition(const Problem& p, const Inputs& in) {
  Outputs<double> result;
  const double scale = p.scale ? static_cast<double>(*p.scale) : 1 / std::sqrt(static_cast<double>(p.D));
  const auto get = [](const std::vector<float>& x, std::int64_t at) {
    return static_cast<double>(x[static_cast<std::size_t>(at)]);
  };
  for (std::int64_t b = 0; b < p.B; ++b) {
    for (std::int64_t h = 0; h < p.H; ++h) {
      const std::int64_t kv = b * p.Hk + h / (p.H / p.Hk);
      for (std::int64_t i = 0; i < p.M; ++i) {
        std::vector<double> weights(static_cast<std::size_t>(p.N), 0.0);
        double sum = 0, max = -HUGE_VAL;
        for (int pass = 0; pass < 2; ++pass) {
          for (std::int64_t j = 0; j < p.N; ++j) {
            if (!sees(p, i, j)) continue;
            double s = 0;
            for (std::int64_t d = 0; d < p.D; ++d) {
              s += get(in.q, ((b * p.H + h) * p.M + i) * p.D + d) * get(in.k, (kv * p.N + j) * p.D + d);
            }
            if (pass == 0) {
              max = std::max(max, s * scale);
            } else {
              sum += weights[static_cast<std::size_t>(j)] = std::exp(s * scale - max);
            }
          }
        }
        result.lse.push_back(sum == 0 ? -HUGE_VAL : max + std::log(sum));
        for (std::int64_t d = 0; d < p.Dv; ++d) {
          double o = 0;
          for (std::int64_t j = 0; j < p.N; ++j) {
            o += weights[static_cast<std::size_t>(j)] * get(in.v, (kv * p.N + j) * p.Dv + d);
          }
          result.out.push_back(sum == 0 ? 0 : o / sum);
        }
      }
    }
  }
  return result;
}

TEST(Oracle, IsTheDefinition) {
  int compared = 0;
  for (std::uint64_t seed = 1; compared < 60; ++seed) {
    const Problem p = random_problem(seed);
    if (p.flops() > 8e6) continue;
    ++compared;
    const Inputs in = make_inputs(p);
    const Outputs<double> got = oracle_forward(p, in), want = by_definition(p, in);
    ASSERT_EQ(got.out.size(), want.out.size()) << to_string(p);
    ASSERT_EQ(got.lse.size(), want.lse.size()) << to_string(p);
    for (std::size_t i = 0; i < want.out.size(); ++i) {
      ASSERT_NEAR(got.out[i], want.out[i], 1e-11) << to_string(p) << " out " << i;
    }
    for (std::size_t i = 0; i < want.lse.size(); ++i) {
      if (std::isinf(want.lse[i])) {
        ASSERT_EQ(got.lse[i], want.lse[i]) << to_string(p) << " lse " << i;
      } else {
        ASSERT_NEAR(got.lse[i], want.lse[i], 1e-11 * (1 + std::fabs(want.lse[i]))) << to_string(p);
      }
    }
  }
}

TEST(Oracle, ByHand) {
  Problem p = parse_problem("M1 N2 D1 scale:1");
  const Inputs weights_1_and_3 = {{1.0f}, {0.0f, std::log(3.0f)}, {4.0f, 8.0f}};
  const Outputs<double> quarter = oracle_forward(p, weights_1_and_3);
  EXPECT_NEAR(quarter.out[0], 7, 1e-6);
  EXPECT_NEAR(quarter.lse[0], std::log(4.0), 1e-6);

  p = parse_problem("M1 N1 D4/2");
  const Outputs<double> one_key = oracle_forward(p, {{1, 2, 3, 4}, {1, 1, 1, 1}, {5, -6}});
  EXPECT_EQ(one_key.out, (std::vector<double>{5, -6}));
  EXPECT_DOUBLE_EQ(one_key.lse[0], 5) << "the default scale of D = 4 is 1/2";

  p = parse_problem("M1 N1 D1 scale:-0.125");
  EXPECT_DOUBLE_EQ(oracle_forward(p, {{2}, {4}, {1}}).lse[0], -1);
}

TEST(Oracle, ZeroQueriesGiveTheMean) {
  const Problem p = parse_problem("B1 H1 M3 N128 D8 causal zero-q");
  const Inputs in = make_inputs(p);
  const Outputs<double> got = oracle_forward(p, in);
  EXPECT_NEAR(got.lse[0], 4.836282, 1e-6);
  EXPECT_NEAR(got.lse[1], 4.844187, 1e-6);
  EXPECT_NEAR(got.lse[2], 4.852030, 1e-6);
  double mean = 0;
  for (std::size_t j = 0; j < 127; ++j) mean += static_cast<double>(in.v[j * 8 + 5]) / 127;
  EXPECT_NEAR(got.out[8 + 5], mean, 1e-12);

  const Problem window = parse_problem("S12 D4 window:4,0 zero-q");
  const Outputs<double> windowed = oracle_forward(window, make_inputs(window));
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(windowed.lse[i], std::log(static_cast<double>(std::min<std::size_t>(i + 1, 5))), 1e-12);
  }
}

TEST(Oracle, HeadsOfOneGroupReadTheSameKeys) {
  const Problem p = parse_problem("B2 H6/2 M1 N1 D1");
  const Outputs<double> got =
      oracle_forward(p, {std::vector<float>(12, 1.0f), {0, 0, 0, 0}, {10, 11, 20, 21}});
  EXPECT_EQ(got.out, (std::vector<double>{10, 10, 10, 11, 11, 11, 20, 20, 20, 21, 21, 21}));
}

TEST(Oracle, EmptyRows) {
  const Problem p = parse_problem("M4 N2 D3 causal");
  const Outputs<double> got = oracle_forward(p, make_inputs(p));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got.lse[i] == -HUGE_VAL, i < 2);
    EXPECT_EQ(got.out[i * 3] == 0, i < 2);
  }
  const Problem no_keys = parse_problem("M4 N0");
  EXPECT_EQ(oracle_forward(no_keys, make_inputs(no_keys)).lse, std::vector<double>(4, -HUGE_VAL));
  EXPECT_TRUE(oracle_forward(parse_problem("B0"), make_inputs(parse_problem("B0"))).out.empty());
  EXPECT_TRUE(oracle_forward(parse_problem("M0"), make_inputs(parse_problem("M0"))).out.empty());
}

TEST(Oracle, NanReachesTheRowsThatSeeItAndNoOthers) {
  const Problem p = parse_problem("S70 D4 causal");
  for (const bool in_v : {false, true}) {
    Inputs in = make_inputs(p);
    const Outputs<double> clean = oracle_forward(p, in);
    (in_v ? in.v : in.k)[66 * 4 + 1] = kNan;
    const Outputs<double> got = oracle_forward(p, in);
    const Outputs<float> plain = yardstick_forward(p, in);
    for (std::size_t i = 0; i < 70; ++i) {
      EXPECT_EQ(std::isnan(got.out[i * 4 + 1]), i >= 66) << i;
      EXPECT_EQ(std::isnan(plain.out[i * 4 + 1]), i >= 66) << i;
      EXPECT_EQ(std::isnan(got.lse[i]), !in_v && i >= 66) << i;
      if (i < 66) {
        EXPECT_EQ(got.out[i * 4 + 1], clean.out[i * 4 + 1]);
      }
    }
  }
}

TEST(Oracle, RefusesInputsOfOtherSizes) {
  const Problem p = parse_problem("S4 D4");
  Inputs in = make_inputs(p);
  in.v.pop_back();
  EXPECT_THROW(oracle_forward(p, in), std::invalid_argument);
  EXPECT_THROW(yardstick_forward(p, in), std::invalid_argument);
}

TEST(Yardstick, RoundsWhatItSays) {
  // P = 1 and exp(-1): the second is rounded where it meets V, not where it meets l.
  const Inputs in = {{1.0f}, {0.0f, -1.0f}, {0.0f, 1.0f}};
  const float e = std::exp(-1.0f);
  for (const Dtype dtype : {Dtype::float32, Dtype::float16, Dtype::bfloat16}) {
    Problem p = parse_problem("M1 N2 D1 scale:1");
    p.dtype = dtype;
    p.dtype_out = Dtype::float32;
    EXPECT_EQ(yardstick_forward(p, in).out[0], round_to(dtype, e) / (1 + e)) << name_of(dtype);
    EXPECT_EQ(yardstick_forward(p, in).lse[0], std::log(1 + e));
    p.dtype_out = Dtype::bfloat16;
    EXPECT_EQ(yardstick_forward(p, in).out[0], round_to(Dtype::bfloat16, round_to(dtype, e) / (1 + e)));
  }
}

TEST(Yardstick, IsNearTheOracle) {
  const struct {
    const char* dtype;
    double least, most;  // relative L2: it neither cheats nor errs
  } cases[] = {{"fp32", 1e-8, 2e-6}, {"fp16", 1e-4, 8e-4}, {"bf16", 1e-3, 6e-3}};
  for (const auto& c : cases) {
    const Problem p = parse_problem(std::string(c.dtype) + " B2 H4/2 M100 N150 D64 causal");
    const Inputs in = make_inputs(p);
    const std::int64_t size[4] = {2, 4, 100, 64};
    const ErrorStats stats = error_stats(yardstick_forward(p, in).out, oracle_forward(p, in).out, size);
    EXPECT_GT(stats.relative_l2, c.least) << c.dtype;
    EXPECT_LT(stats.relative_l2, c.most) << c.dtype;
  }
}

// ---- comparison ----------------------------------------------------------------------------------------

TEST(ErrorStats, ByHand) {
  const std::int64_t size[4] = {1, 2, 1, 2};
  const ErrorStats stats = error_stats({1, 2, 3, 8}, {1, 2, 6, 4}, size);
  EXPECT_EQ(stats.max_abs, 4);
  EXPECT_EQ(stats.mean_abs, 7.0 / 4);
  EXPECT_EQ(stats.rmse, 2.5);
  EXPECT_DOUBLE_EQ(stats.relative_l2, std::sqrt(25.0 / 57));
  EXPECT_EQ(stats.worst[1], 1);
  EXPECT_EQ(stats.worst[3], 1);
  EXPECT_EQ(stats.worst_got, 8);
  EXPECT_EQ(stats.worst_want, 4);
  EXPECT_EQ(stats.not_finite, 0);
  EXPECT_TRUE(contains(to_string(stats), "max abs 4 at [0, 1, 0, 1] (got 8, want 4)")) << to_string(stats);
  EXPECT_THROW(error_stats({1}, {1, 2}, size), std::invalid_argument);
}

TEST(ErrorStats, NotFinite) {
  const std::int64_t size[4] = {1, 1, 1, 2};
  const double nan = std::nan("");
  EXPECT_EQ(error_stats({kNan, kInf}, {nan, HUGE_VAL}, size).not_finite, 0);
  EXPECT_EQ(error_stats({1, kNan}, {1, 2}, size).not_finite, 1);
  EXPECT_EQ(error_stats({1, kNan}, {1, 2}, size).max_abs, HUGE_VAL);
  EXPECT_EQ(error_stats({1, kNan}, {1, 2}, size).worst[3], 1);
  EXPECT_EQ(error_stats({1, 2}, {1, nan}, size).not_finite, 1);
  EXPECT_EQ(error_stats({1, -kInf}, {1, HUGE_VAL}, size).not_finite, 1);
  EXPECT_EQ(error_stats({1, kInf}, {1, nan}, size).not_finite, 1);
}

class CheckForward : public testing::TestWithParam<const char*> {
 protected:
  CheckForward()
      : problem_(parse_problem(GetParam())),
        inputs_(make_inputs(problem_)),
        reference_(make_reference(problem_, inputs_)),
        good_(reference_.yardstick) {}

  std::string check(const Outputs<float>& got) { return check_forward(problem_, reference_, inputs_, got); }
  /// The text names the problem and holds `part`.
  void expect_fault(const Outputs<float>& got, const char* part) {
    const std::string text = check(got);
    EXPECT_TRUE(contains(text, to_string(problem_))) << text;
    EXPECT_TRUE(contains(text, part)) << part << " is not in: " << text;
  }

  Problem problem_;
  Inputs inputs_;
  Reference reference_;
  Outputs<float> good_;
};

TEST_P(CheckForward, AcceptsTheYardstickAndTheOracle) {
  EXPECT_EQ(check(good_), "");
  EXPECT_EQ(check_forward(problem_, inputs_, good_), "");
  Outputs<float> exact;
  for (const double x : reference_.oracle.out)
    exact.out.push_back(round_to(problem_.out_dtype(), static_cast<float>(x)));
  for (const double x : reference_.oracle.lse) exact.lse.push_back(static_cast<float>(x));
  EXPECT_EQ(check(exact), "");
}

TEST_P(CheckForward, RejectsNan) {
  for (const std::size_t at : {std::size_t{0}, good_.out.size() / 2, good_.out.size() - 1}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      Outputs<float> got = good_;
      got.out[at] = bad;
      expect_fault(got, "NaN or infinity in the wrong place");
    }
  }
  for (const float bad : {kNan, kInf}) {
    Outputs<float> got = good_;
    got.lse.back() = bad;
    expect_fault(got, "LSE at [1, 2, ");
  }
}

TEST_P(CheckForward, RejectsOneWrongElement) {
  Outputs<float> got = good_;
  got.out[got.out.size() - 3] += 0.1f;
  expect_fault(got, "max abs error");
}

TEST_P(CheckForward, RejectsASmallErrorEverywhere) {
  Outputs<float> got = good_;
  const float grain = problem_.dtype == Dtype::float32   ? 2e-6f
                      : problem_.dtype == Dtype::float16 ? 1.5e-3f
                                                         : 1.2e-2f;
  for (float& x : got.out) x *= 1 + grain;
  expect_fault(got, "relative L2 error");
}

TEST_P(CheckForward, RejectsUnwrittenOutput) {
  Outputs<float> got = good_;
  std::memset(got.out.data(), 0xFF, got.out.size() * sizeof(float));
  expect_fault(got, "NaN or infinity in the wrong place");
  got = good_;
  std::memset(got.lse.data(), 0xFF, got.lse.size() * sizeof(float));
  expect_fault(got, "LSE at [0, 0, 0]");
}

TEST_P(CheckForward, RejectsZerosAndSwappedRows) {
  Outputs<float> got = good_;
  std::fill(got.out.begin(), got.out.end(), 0.0f);
  expect_fault(got, "max abs error");
  got = good_;
  const auto width = problem_.Dv;
  const auto last = got.out.end() - width;
  std::swap_ranges(last, got.out.end(), last - width);
  expect_fault(got, "max abs error");
}

TEST_P(CheckForward, RejectsAWrongLse) {
  for (const float change : {0.6931472f, -0.6931472f, 1e-4f}) {
    Outputs<float> got = good_;
    got.lse.back() += change;
    expect_fault(got, "LSE at");
  }
  Outputs<float> got = good_;
  for (float& x : got.lse) x *= 1.442695f;  // to base 2
  expect_fault(got, "LSE at");
}

TEST_P(CheckForward, RejectsOtherSizes) {
  Outputs<float> got = good_;
  got.out.pop_back();
  expect_fault(got, "wrong number of elements");
  got = good_;
  got.lse.clear();
  expect_fault(got, "wrong number of elements");
  Problem no_lse = problem_;
  no_lse.lse = false;
  EXPECT_EQ(check_forward(no_lse, reference_, inputs_, got), "");
}

TEST_P(CheckForward, RejectsAWrongMask) {
  Problem off_by_one = problem_;
  off_by_one.mask = Mask::window(-1, 1);
  expect_fault(yardstick_forward(off_by_one, inputs_), "max abs error");
  off_by_one.mask = Mask::causal_top_left();
  expect_fault(yardstick_forward(off_by_one, inputs_), "max abs error");
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CheckForward,
                         testing::Values("fp32 B2 H3 M40 N50 D64 causal", "fp16 B2 H3 M40 N50 D64 causal",
                                         "bf16 B2 H3 M40 N50 D64 causal",
                                         "bf16 out-fp32 B2 H3 M40 N50 D64 causal"),
                         [](const auto& instance) { return "problem_" + std::to_string(instance.index); });

TEST(CheckForwardEmptyRows, MustBeExactlyZero) {
  const Problem p = parse_problem("B2 M4 N2 D3 causal");
  const Inputs in = make_inputs(p);
  Outputs<float> got = yardstick_forward(p, in);
  ASSERT_EQ(check_forward(p, in, got), "");
  got.out[12 + 3 + 2] = 1e-6f;  // batch 1, row 1, feature 2; far below the tolerance of other rows
  EXPECT_TRUE(contains(check_forward(p, in, got), "row [1, 0, 1] sees no key and must be 0, got"));
  got = yardstick_forward(p, in);
  got.lse[1] = -1e30f;
  EXPECT_TRUE(contains(check_forward(p, in, got), "LSE at [0, 0, 1]"));
  got = yardstick_forward(p, in);
  got.lse[2] = -kInf;
  EXPECT_TRUE(contains(check_forward(p, in, got), "LSE at [0, 0, 2]"));
}

TEST(CheckForwardExactProblems, AllowTheLastBitsOfFp32) {
  const Problem p = parse_problem("M32 N1 D64");  // O = V: the yardstick is exact
  const Inputs in = make_inputs(p);
  Outputs<float> got = yardstick_forward(p, in);
  for (float& x : got.out) x = std::nextafter(x, kInf);
  EXPECT_EQ(check_forward(p, in, got), "");
  for (float& x : got.out) x *= 1 + 1e-6f;
  EXPECT_TRUE(contains(check_forward(p, in, got), "relative L2 error"));
}

TEST(CheckForwardLargeScores, AreAllowedTheirRoundingAndNoMore) {
  const Problem p = parse_problem("fp32 B2 H2 M60 N60 D64 causal large");
  const Inputs in = make_inputs(p);
  const Reference reference = make_reference(p, in);
  const double rounding = score_rounding(p, in);
  ASSERT_GT(rounding, 1e-4);
  ASSERT_LT(rounding, 2e-3);
  Outputs<float> got = reference.yardstick;
  EXPECT_EQ(check_forward(p, reference, in, got), "");
  const double want = reference.oracle.lse[7], bound = 1e-5 + 2e-6 * std::fabs(want) + rounding;
  got.lse[7] = static_cast<float>(want + 0.9 * bound);
  EXPECT_EQ(check_forward(p, reference, in, got), "");
  got.lse[7] = static_cast<float>(want + 1.1 * bound);
  EXPECT_TRUE(contains(check_forward(p, reference, in, got), "LSE at [0, 0, 7]"));
  got = reference.yardstick;
  for (float& x : got.out) x *= 1.001f;
  EXPECT_TRUE(contains(check_forward(p, reference, in, got), "relative L2 error"));
}

// Scores of usual size get nothing on top.
TEST(CheckForwardLargeScores, BeginAbove64) {
  const Problem p = parse_problem("fp32 M1 N2 D4");
  const Inputs usual = {{16, 0, 0, 0}, {8, 0, 0, 0, 0, 4, 0, 0}, std::vector<float>(8, 1.0f)};  // 16 * 8 / 2
  EXPECT_EQ(score_rounding(p, usual), 0);
  const Inputs large = {{0, 32, 0, 0}, {8, 0, 0, 0, 0, 4, 0, 0}, std::vector<float>(8, 1.0f)};
  EXPECT_EQ(score_rounding(p, large), 128 * 0x1p-24);
  Problem scaled = p;
  scaled.scale = -1.0f;
  EXPECT_EQ(score_rounding(scaled, usual), 128 * 0x1p-24);
}

TEST(CheckForwardBounds, AreTwiceTheYardsticksErrorAndOneAndAHalf) {
  const Problem p = parse_problem("bf16 B1 H2 M60 N60 D64 causal");
  const Inputs in = make_inputs(p);
  const Reference reference = make_reference(p, in);
  const std::int64_t size[4] = {1, 2, 60, 64};
  double largest_v = 0;
  for (const float x : in.v) largest_v = std::max(largest_v, std::fabs(static_cast<double>(x)));
  const double bound = 2 * error_stats(reference.yardstick.out, reference.oracle.out, size).max_abs + 1e-5 +
                       0x1p-8 * largest_v / std::sqrt(60.0);
  Outputs<float> got = reference.yardstick;
  got.out[100] = static_cast<float>(reference.oracle.out[100] + 0.98 * bound);
  EXPECT_EQ(check_forward(p, reference, in, got), "");
  got.out[100] = static_cast<float>(reference.oracle.out[100] + 1.02 * bound);
  EXPECT_TRUE(contains(check_forward(p, reference, in, got), "out: max abs error"));

  // Both heads' error times `factor`: relative to the yardstick's own, slice by slice.
  const auto amplified = [](const Reference& from, double factor) {
    Outputs<float> out = from.yardstick;
    for (std::size_t i = 0; i < out.out.size(); ++i) {
      const double want = from.oracle.out[i];
      out.out[i] = static_cast<float>(want + factor * (static_cast<double>(out.out[i]) - want));
    }
    return out;
  };
  EXPECT_EQ(check_forward(p, reference, in, amplified(reference, 1.45)), "");
  const std::string text = check_forward(p, reference, in, amplified(reference, 1.55));
  EXPECT_TRUE(contains(text, "relative L2 error") && !contains(text, "max abs error")) << text;

  const Problem large = parse_problem("B1 H2 M60 N60 D64 causal large");
  const Inputs large_in = make_inputs(large);
  const Reference large_reference = make_reference(large, large_in);
  EXPECT_EQ(check_forward(large, large_reference, large_in, amplified(large_reference, 1.9)), "");
}

TEST(CheckForwardOverflow, IsInfiniteWhereTheOutputCannotHoldTheValue) {
  const Problem p = parse_problem("fp32 out-fp16 M1 N1 D2");
  const Inputs in = {{1, 1}, {1, 1}, {1e6f, 2}};
  const Outputs<float> got = yardstick_forward(p, in);
  EXPECT_EQ(got.out[0], kInf);
  EXPECT_EQ(check_forward(p, in, got), "");
  Outputs<float> saturated = got;
  saturated.out[0] = 65504;
  EXPECT_TRUE(contains(check_forward(p, in, saturated), "NaN or infinity in the wrong place"));
}

TEST(CheckForwardNan, MustBeWhereTheOracleHasIt) {
  const Problem p = parse_problem("S4 D2 causal");
  Inputs in = make_inputs(p);
  in.k[2 * 2] = kNan;
  const Outputs<float> got = yardstick_forward(p, in);
  EXPECT_EQ(check_forward(p, in, got), "");
  Outputs<float> swallowed = got;
  swallowed.out[2 * 2] = 0;
  EXPECT_TRUE(contains(check_forward(p, in, swallowed), "NaN or infinity in the wrong place"));
  swallowed = got;
  swallowed.lse[3] = 0;
  EXPECT_TRUE(contains(check_forward(p, in, swallowed), "LSE at [0, 0, 3]"));
}

// ---- memory and layouts --------------------------------------------------------------------------------

/// Guards are off under AddressSanitizer, which would also stop the planted writes.
class GuardedBufferTest : public testing::TestWithParam<Side> {
 protected:
  void SetUp() override {
    if (GetParam() == Side::device && !have_device()) GTEST_SKIP() << "skipped: no CUDA device";
    guard_bytes = 4096;
  }
  void TearDown() override { guard_bytes = before_; }

  std::size_t before_ = guard_bytes;
};

TEST_P(GuardedBufferTest, KeepsThePayload) {
  for (const std::size_t misalignment : {std::size_t{0}, std::size_t{2}}) {
    GuardedBuffer buffer(GetParam(), 100, 0xA5, misalignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, misalignment);
    std::vector<unsigned char> bytes(100, 7), back(100);
    buffer.write(bytes.data());
    buffer.read(back.data());
    EXPECT_EQ(back, bytes);
    EXPECT_EQ(buffer.damage(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Sides, GuardedBufferTest, testing::Values(Side::host, Side::device),
                         [](const auto& instance) {
                           return instance.param == Side::host ? "host" : "device";
                         });

TEST(GuardedBufferDamage, IsFoundAndPlaced) {
  const std::size_t before = guard_bytes;
  guard_bytes = 4096;
  const auto damage = [](std::ptrdiff_t at) {
    GuardedBuffer buffer(Side::host, 100, 0xA5, 2);
    static_cast<unsigned char*>(buffer.data())[at] = 0;
    return buffer.damage();
  };
  EXPECT_EQ(damage(0), "");
  EXPECT_EQ(damage(99), "");
  EXPECT_EQ(damage(-1), "1 bytes before it, from -1 to -1");
  EXPECT_EQ(damage(-4098), "1 bytes before it, from -4098 to -4098");
  EXPECT_EQ(damage(100), "1 bytes after it, from 0 to 0");
  EXPECT_EQ(damage(100 + 4095), "1 bytes after it, from 4095 to 4095");
  guard_bytes = before;
}

std::vector<std::int64_t> offsets(const Placed& p) {
  std::vector<std::int64_t> all;
  for (std::int64_t b = 0; b < p.size[0]; ++b) {
    for (std::int64_t h = 0; h < p.size[1]; ++h) {
      for (std::int64_t s = 0; s < p.size[2]; ++s) {
        for (std::int64_t d = 0; d < p.size[3]; ++d) {
          all.push_back(p.offset + b * p.stride[0] + h * p.stride[1] + s * p.stride[2] + d);
        }
      }
    }
  }
  return all;
}

TEST(Place, ElementsAreInsideAndApart) {
  for (const char* layout : {"bhsd", "bshd", "packed", "padded", "unaligned", "broadcast"}) {
    const Problem p = parse_problem(std::string("fp16 B2 H4/2 S5 D7 ") + layout);
    const PlacedProblem placed = place(p);
    std::set<std::int64_t> shared;
    std::size_t count = 0;
    for (const Placed* tensor : {&placed.q, &placed.k, &placed.v, &placed.out}) {
      const std::vector<std::int64_t> all = offsets(*tensor);
      const std::set<std::int64_t> apart(all.begin(), all.end());
      const bool repeats = p.layout == Layout::broadcast && (tensor == &placed.k || tensor == &placed.v);
      EXPECT_EQ(apart.size(), repeats ? 35u : all.size()) << layout;
      EXPECT_EQ(*apart.begin(), tensor->offset) << layout;
      EXPECT_LE(*apart.rbegin(), tensor->elements - 1) << layout;
      if (!placed.one_buffer) {
        EXPECT_EQ(*apart.rbegin(), tensor->elements - 1) << layout;
      } else if (tensor != &placed.out) {
        shared.insert(apart.begin(), apart.end());
        count += apart.size();
      }
    }
    if (placed.one_buffer) {
      EXPECT_EQ(shared.size(), count) << "slices share elements";
      EXPECT_EQ(static_cast<std::int64_t>(count), placed.q.elements) << "slices leave gaps";
    }
  }
}

TEST(Place, PaddedAndUnaligned) {
  const PlacedProblem padded = place(parse_problem("fp16 B2 H4/2 S5 D7 padded"));
  for (const Placed* tensor : {&padded.q, &padded.k, &padded.v, &padded.out}) {
    for (int axis = 0; axis < 3; ++axis) EXPECT_EQ(tensor->stride[axis] % 8, 0);
    EXPECT_GT(tensor->stride[2], tensor->size[3]);
    EXPECT_GT(tensor->stride[1], tensor->size[2] * tensor->stride[2]);
    EXPECT_GT(tensor->stride[0], tensor->size[1] * tensor->stride[1]);
  }
  const PlacedProblem unaligned = place(parse_problem("fp16 B2 H4/2 S5 D8 unaligned"));
  EXPECT_EQ(unaligned.q.stride[2], 9);
  EXPECT_EQ(unaligned.q.stride[1], 46);
  EXPECT_EQ(unaligned.q.stride[0], 4 * 46 + 1);
}

TEST(Scatter, IsUndoneByGatherAndLeavesTheGaps) {
  for (const char* layout : {"bhsd", "bshd", "packed", "padded", "unaligned", "broadcast"}) {
    for (const char* dtype : {"fp32", "fp16", "bf16"}) {
      const Problem p = parse_problem(std::string(dtype) + " B2 H4/2 S5 D7 " + layout);
      const Inputs in = make_inputs(p);
      const Placed placed = place(p).v;
      const std::size_t width = size_of(p.dtype), bytes = static_cast<std::size_t>(placed.elements) * width;
      std::vector<std::byte> buffer(bytes, std::byte{0xFF});
      scatter(in.v.data(), placed, p.dtype, buffer.data());
      std::vector<float> back(in.v.size());
      gather(buffer.data(), placed, p.dtype, back.data());
      EXPECT_EQ(back, in.v) << to_string(p);
      const float last = back.back();
      const std::byte* at = buffer.data() + static_cast<std::size_t>(offsets(placed).back()) * width;
      const float there = p.dtype == Dtype::float32 ? *reinterpret_cast<const float*>(at)
                          : p.dtype == Dtype::float16
                              ? static_cast<float>(*reinterpret_cast<const half*>(at))
                              : static_cast<float>(*reinterpret_cast<const bfloat16*>(at));
      EXPECT_EQ(there, last);
      fill_elements(buffer.data(), placed, p.dtype, 0xFF);
      EXPECT_EQ(buffer, std::vector<std::byte>(bytes, std::byte{0xFF}))
          << "gaps were written: " << to_string(p);
    }
  }
}

// ---- running -------------------------------------------------------------------------------------------

TEST(RunForward, EveryLayoutOnTheHost) {
  for (const char* layout : {"bhsd", "bshd", "packed", "padded", "unaligned", "broadcast"}) {
    for (const char* words :
         {"fp32 seed 1", "fp16 scale:0.25 seed 2", "bf16 out-fp32 scale:0 seed 3", "fp32 no-lse seed 4"}) {
      const Problem p = parse_problem(std::string("B2 H4/2 S21 D24 causal ") + layout + " " + words);
      const Inputs in = make_inputs(p);
      const RunResult result = run_forward(p, in, Version::CPU, Side::host);
      EXPECT_EQ(result.guard_damage, "") << to_string(p);
      EXPECT_EQ(check_forward(p, in, result.got), "");
      EXPECT_EQ(result.got.lse.empty(), !p.lse);
    }
  }
}

TEST(RunForward, Empty) {
  for (const char* sizes : {"B0 S4", "M0 N4", "M4 N0", "S0"}) {
    for (const char* seed : {"seed 1", "seed 4", "seed 5", "seed 8"}) {
      const Problem p = parse_problem(std::string(sizes) + " H2 D5 " + seed);
      const Inputs in = make_inputs(p);
      const RunResult result = run_forward(p, in, Version::CPU, Side::host);
      EXPECT_EQ(result.guard_damage, "") << to_string(p);
      EXPECT_EQ(check_forward(p, in, result.got), "");
    }
  }
}

TEST(RunForward, ThrowsWhatTheLibraryThrows) {
  Problem p = parse_problem("S4 D4 seed 2");
  p.mask.left = -2;  // the grammar does not let it through
  const Inputs in = make_inputs(parse_problem("S4 D4 seed 2"));
  EXPECT_THROW(run_forward(p, in, Version::CPU, Side::host), InvalidArgument);
  p.seed = 3;  // through the workspace query
  EXPECT_THROW(run_forward(p, in, Version::CPU, Side::host), InvalidArgument);
}

// What a faulty kernel might do, in place of fa_forward.

fa_status write_nothing(const fa_forward_args*, fa_version, Stream) {
  return FA_OK;
}

template <class Spoil>
fa_status spoiled(const fa_forward_args* args, fa_version version, Stream stream, const Spoil& spoil) {
  const fa_status status = fa_forward(args, version, stream);
  spoil();
  return status;
}

void spoil(const void* data, std::ptrdiff_t at) {
  static_cast<unsigned char*>(const_cast<void*>(data))[at] ^= 0x11;
}

fa_status write_before_out(const fa_forward_args* args, fa_version version, Stream stream) {
  return spoiled(args, version, stream, [=] { spoil(args->out.data, -1); });
}

fa_status write_in_a_gap_of_out(const fa_forward_args* args, fa_version version, Stream stream) {
  const auto gap = static_cast<std::ptrdiff_t>(args->out.size[3]) * 4;
  return spoiled(args, version, stream, [=] { spoil(args->out.data, gap); });
}

fa_status write_after_lse(const fa_forward_args* args, fa_version version, Stream stream) {
  const auto end = static_cast<std::ptrdiff_t>(args->out.size[0] * args->out.size[1] * args->out.size[2]) * 4;
  return spoiled(args, version, stream, [=] { spoil(args->lse, end); });
}

fa_status write_after_workspace(const fa_forward_args* args, fa_version version, Stream stream) {
  const auto end = static_cast<std::ptrdiff_t>(args->workspace_size);
  return spoiled(args, version, stream, [=] { spoil(args->workspace, end); });
}

fa_status write_to_k(const fa_forward_args* args, fa_version version, Stream stream) {
  return spoiled(args, version, stream, [=] { spoil(args->k.data, 1); });
}

fa_status write_after_v(const fa_forward_args* args, fa_version version, Stream stream) {
  const auto& v = args->v;
  const std::int64_t last = (v.size[0] - 1) * v.stride[0] + (v.size[1] - 1) * v.stride[1] +
                            (v.size[2] - 1) * v.stride[2] + v.size[3];
  return spoiled(args, version, stream, [=] { spoil(v.data, static_cast<std::ptrdiff_t>(last) * 4); });
}

fa_status write_and_refuse(const fa_forward_args* args, fa_version, Stream) {
  spoil(args->out.data, 3);
  return FA_UNSUPPORTED;
}

fa_status write_lse_and_refuse(const fa_forward_args* args, fa_version, Stream) {
  spoil(args->lse, 3);
  return FA_UNSUPPORTED;
}

fa_status write_workspace_and_refuse(const fa_forward_args* args, fa_version, Stream) {
  spoil(args->workspace, 0);
  return FA_UNSUPPORTED;
}

fa_status refuse(const fa_forward_args*, fa_version, Stream) {
  return FA_UNSUPPORTED;
}

class RunForwardFaults : public testing::Test {
 protected:
  void SetUp() override {
    guard_bytes = 4096;
  }  // off under AddressSanitizer, which would stop the planted writes
  void TearDown() override { guard_bytes = before_; }

  RunResult run(ForwardCall call) { return run_forward(problem_, inputs_, Version::CPU, Side::host, call); }

  std::size_t before_ = guard_bytes;
  const Problem problem_ = parse_problem("fp32 B2 H2 S9 D5 padded seed 3");
  const Inputs inputs_ = make_inputs(problem_);
};

TEST_F(RunForwardFaults, StrayWritesAreNamed) {
  const struct {
    ForwardCall call;
    const char* text;
  } cases[] = {
      {write_before_out, "out: 1 bytes before it, from -1 to -1\n"},
      {write_in_a_gap_of_out, "out: written at byte 20\n"},
      {write_after_lse, "lse: 1 bytes after it, from 0 to 0\n"},
      {write_after_workspace, "workspace: 1 bytes after it, from 0 to 0\n"},
      {write_to_k, "k: changed at byte 1\n"},
      {write_after_v, "v: 1 bytes after it, from 0 to 0\n"},
  };
  EXPECT_EQ(run(fa_forward).guard_damage, "");
  for (const auto& c : cases) {
    const RunResult result = run(c.call);
    EXPECT_EQ(result.guard_damage, c.text);
    if (c.call != write_to_k) {
      EXPECT_EQ(check_forward(problem_, inputs_, result.got), "") << c.text;
    }
  }
}

TEST_F(RunForwardFaults, UnwrittenOutputsAreNan) {
  const RunResult result = run(write_nothing);
  EXPECT_TRUE(
      std::all_of(result.got.out.begin(), result.got.out.end(), [](float x) { return std::isnan(x); }));
  EXPECT_TRUE(
      std::all_of(result.got.lse.begin(), result.got.lse.end(), [](float x) { return std::isnan(x); }));
  const std::string text = check_forward(problem_, inputs_, result.got);
  EXPECT_TRUE(contains(text, "NaN or infinity in the wrong place") && contains(text, "LSE at [0, 0, 0]"))
      << text;
}

TEST_F(RunForwardFaults, ARefusedCallMustNotWrite) {
  EXPECT_THROW(run(refuse), Unsupported);
  const struct {
    ForwardCall call;
    const char* text;
  } cases[] = {{write_and_refuse, "out: written at byte 3"},
               {write_lse_and_refuse, "lse: written at byte 3"},
               {write_workspace_and_refuse, "workspace: "}};
  for (const auto& c : cases) {
    try {
      run(c.call);
      ADD_FAILURE() << c.text;
    } catch (const std::logic_error& error) {
      EXPECT_TRUE(contains(error.what(), c.text)) << error.what();
    }
  }
}

TEST(WatchdogDeathTest, FiresAndNamesWhatHung) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const Watchdog watchdog(0.05, "fp16 B4 hangs");
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(124), "not finished after 0.05 s: fp16 B4 hangs");
}

TEST(Watchdog, IsSilentWhenInTime) {
  const auto begin = std::chrono::steady_clock::now();
  { const Watchdog watchdog(60, "in time"); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace fa::test
