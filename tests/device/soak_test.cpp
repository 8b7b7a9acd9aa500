/// Many calls over two streams at once, by the rungs with asynchronous copies: every result is compared on
/// the device, bit by bit, with the problem's first one, which the oracle has checked. FLASHATTN_TEST_SOAK
/// sets the number of calls by each row, FLASHATTN_TEST_SEED their order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "tests/device/device_array.hpp"
#include "tests/device/soak/launch.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/layout.hpp"
#include "tests/support/row_suite.hpp"
#include "tests/support/run.hpp"

namespace fa::test {
namespace {

using soak::Differences;
using soak::kNoCall;

// Every instance of V8. Those for 64 features have query tiles of 192 and of 128, of which an H200's 132
// multiprocessors take what is named here. One call takes about 5 to 60 us.
constexpr const char* kProblems[] = {
    "B1 H67 S385 D64 seed 1",                                // 64: 192 queries
    "B1 H64/8 S960 D64 causal bshd seed 2",                  // 64: 192 queries
    "B2 H6/2 M700 N1500 D64 causal seed 3",                  // 64: 128 queries
    "B1 H16 M1000 N700 D64/62 window:200,50 padded seed 4",  // 64: 128 queries; rows of O end within 16 bytes
    "B1 H16 S1024 D128 causal bshd seed 5",                  // 128
    "B2 H24/3 M300 N1500 D128 window:600,0 seed 6",          // 128
    "B1 H37 M1000 N50 D128 window-top-left:3,-1 seed 7",     // 128: many query tiles, a key tile each
    "B1 H12/4 S777 D192/128 causal seed 8",                  // 192/128
    "B2 H8/1 M513 N1100 D192/128 bshd seed 9",               // 192/128
    "B1 H16 M520 N640 D192 causal-top-left seed 10",         // 192
    "B1 H10/5 S900 D256 causal seed 11",                     // 256
    "B1 H8 M600 N1537 D256/250 padded seed 12",              // 256; rows of O end within 16 bytes
    "B3 H2 S1 D64 seed 13",                                  // one key, a block a head
    "B2 H32/8 M1 N1500 D128 seed 14",                        // one query
    "B1 H16/4 S900 D96 causal seed 15",                      // 96
    "B1 H8 M600 N1100 D96/90 padded seed 16",                // 96; rows of O end within 16 bytes
};

std::vector<Row> soaked_rows() {
  std::vector<Row> rows = rows_of(Pass::forward);
  std::erase_if(rows,
                [](const Row& row) { return row.version != Version::V7 && row.version != Version::V8; });
  return rows;
}

std::uint64_t first_seed() {
  return number_from("FLASHATTN_TEST_SEED", 20220527);
}

/// Which problem each call takes: all of them in a new order, again and again. The streams take turns, so
/// that each pair of problems meets on the device sooner or later.
class Order {
 public:
  Order(std::size_t problems, std::uint64_t seed) : deck_(problems), next_(problems), random_(seed) {
    std::iota(deck_.begin(), deck_.end(), std::size_t{0});
  }
  std::size_t next() {
    if (next_ == deck_.size()) {
      std::shuffle(deck_.begin(), deck_.end(), random_);
      next_ = 0;
    }
    return deck_[next_++];
  }

 private:
  std::vector<std::size_t> deck_;
  std::size_t next_;
  std::mt19937_64 random_;
};

// ---- on the device ---------------------------------------------------------------------------------------

constexpr std::size_t kStreams = 2;

/// Streams that wait neither for each other nor for the default one.
class Streams {
 public:
  Streams() {
    for (cudaStream_t& stream : streams_) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Streams() {
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  cudaStream_t operator[](std::size_t i) const { return streams_[i]; }

 private:
  std::array<cudaStream_t, kStreams> streams_{};
};

/// The tensor's buffer as its layout says, NaN in its gaps.
std::vector<std::byte> image(const std::vector<float>& values, const Placed& placed, Dtype dtype) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(placed.elements) * size_of(dtype), std::byte{0xFF});
  scatter(values.data(), placed, dtype, bytes.data());
  return bytes;
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// One call's out and LSE, in one buffer: [out][up to 256 bytes][lse][up to 16 bytes]. What lies between
/// them, and in the gaps of out, is compared too.
class Result {
 public:
  explicit Result(const Problem& problem)
      : out_(place(problem).out),
        out_dtype_(problem.out_dtype()),
        rows_(static_cast<std::size_t>(problem.B * problem.H * problem.M)),
        lse_at_(round_up(static_cast<std::size_t>(out_.elements) * size_of(out_dtype_), 256)),
        bytes_(round_up(lse_at_ + rows_ * sizeof(float), 16)),
        memory_(bytes_) {}

  /// NaN everywhere, so that what a call does not write is seen.
  void clear(cudaStream_t stream) const { check(cudaMemsetAsync(memory_.data(), 0xFF, bytes_, stream)); }
  fa_tensor out() const { return c_tensor(memory_.data(), out_, out_dtype_); }
  float* lse() const { return reinterpret_cast<float*>(memory_.data() + lse_at_); }
  std::size_t lse_at() const { return lse_at_; }
  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return memory_.data(); }
  Outputs<float> get() const {
    const std::vector<std::byte> bytes = memory_.get();
    Outputs<float> outputs;
    outputs.out.resize(rows_ * static_cast<std::size_t>(out_.size[3]));
    gather(bytes.data(), out_, out_dtype_, outputs.out.data());
    outputs.lse.resize(rows_);
    std::memcpy(outputs.lse.data(), bytes.data() + lse_at_, rows_ * sizeof(float));
    return outputs;
  }

 private:
  Placed out_;
  Dtype out_dtype_;
  std::size_t rows_, lse_at_, bytes_;
  DeviceArray<std::byte> memory_;
};

/// A problem on the current device: its inputs, the result that the others should equal, one for each stream.
class SoakedProblem {
 public:
  SoakedProblem(const Problem& problem, const Inputs& inputs)
      : line(to_string(problem)),
        reference(problem),
        results{Result(problem), Result(problem)},
        problem_(problem),
        placed_(place(problem)),
        q_(image(inputs.q, placed_.q, problem.dtype)),
        k_(image(inputs.k, placed_.k, problem.dtype)),
        v_(image(inputs.v, placed_.v, problem.dtype)) {}

  fa_forward_args args(const Result& to) const {
    fa_forward_args args;
    detail::check(fa_forward_args_init(&args, sizeof args));
    args.q = c_tensor(q_.data(), placed_.q, problem_.dtype);
    args.k = c_tensor(k_.data(), placed_.k, problem_.dtype);
    args.v = c_tensor(v_.data(), placed_.v, problem_.dtype);
    args.out = to.out();
    args.lse = to.lse();
    set_options(args, problem_);
    return args;
  }
  /// The row's own code runs it on this device, and no stand-in.
  bool is_taken_by(const Row& row) const {
    const fa_forward_args to_explain = args(reference);
    fa_forward_plan plan = {};
    plan.size = sizeof plan;
    detail::check(
        fa_forward_explain(&to_explain, static_cast<fa_version>(row.version), &plan, nullptr, 0, nullptr));
    return plan.kernel != nullptr && row.kernel == plan.kernel;
  }

  const std::string line;
  const Result reference;
  const std::array<Result, kStreams> results;

 private:
  Problem problem_;
  PlacedProblem placed_;
  DeviceArray<std::byte> q_, k_, v_;
};

/// What call `number` runs: fa_forward, or what a test plants in its place.
using Call = std::function<fa_status(std::uint64_t number, const fa_forward_args& args, cudaStream_t stream)>;

Call forward_by(const Row& row) {
  return [version = static_cast<fa_version>(row.version)](std::uint64_t, const fa_forward_args& args,
                                                          cudaStream_t stream) {
    return fa_forward(&args, version, stream);
  };
}

// Calls between two looks at what has been found.
constexpr std::uint64_t kCallsAtOnce = 1000;
constexpr double kSecondsAtOnce = 120;

/// Makes the calls, each compared with its problem's reference. Empty: all were the same; else the first that
/// was not, by number, problem and stream, after the thousand that it belongs to.
std::string soak_calls(const std::deque<SoakedProblem>& problems, std::uint64_t calls, std::uint64_t seed,
                       const Call& call) {
  const Streams streams;
  const DeviceArray<Differences> found(std::vector<Differences>(1));
  check(cudaDeviceSynchronize());  // a stream that does not wait for the default one waits for no copy on it
  Order order(problems.size(), seed);
  for (std::uint64_t first = 0; first < calls; first += kCallsAtOnce) {
    const std::uint64_t end = std::min(first + kCallsAtOnce, calls);
    const Watchdog watchdog(kSecondsAtOnce, "calls " + std::to_string(first) + " to " +
                                                std::to_string(end - 1) + " of " + std::to_string(calls) +
                                                ", FLASHATTN_TEST_SEED=" + std::to_string(seed));
    std::vector<std::string> lines;  // of these calls
    for (std::uint64_t number = first; number < end; ++number) {
      const std::size_t of_stream = number % kStreams;
      const cudaStream_t stream = streams[of_stream];
      const SoakedProblem& problem = problems[order.next()];
      const Result& result = problem.results[of_stream];
      lines.push_back(problem.line);
      result.clear(stream);
      if (call(number, problem.args(result), stream) != FA_OK) {
        return "call " + std::to_string(number) + ", " + problem.line + ": " + fa_last_error();
      }
      const soak::Comparison comparison = {result.data(), problem.reference.data(), result.bytes(), number};
      check(static_cast<cudaError_t>(soak::compare(comparison, found.data(), stream)));
    }
    check(cudaDeviceSynchronize());
    const Differences now = found.get()[0];
    if (now.words == 0) continue;
    return std::to_string(now.words) + " words of 32 bits differ by call " + std::to_string(end - 1) +
           ", first in call " + std::to_string(now.first_call) + " of " + std::to_string(calls) +
           " on stream " + std::to_string(now.first_call % kStreams) + ": " +
           lines.at(now.first_call - first);
  }
  return "";
}

// ---- the rows --------------------------------------------------------------------------------------------

class Soak : public RowSuite {
 protected:
  /// Puts the problems on the device, runs each once, alone, and checks that result: the reference. Skips the
  /// test where the device leaves all of them to a stand-in.
  void prepare(const std::vector<std::string>& lines) {
    check(cudaSetDevice(0));
    bool any = false;
    for (const std::string& line : lines) {
      const Problem of_row = problem(line);
      const Watchdog watchdog(120, to_string(of_row));
      const Inputs inputs = make_inputs(of_row);
      const SoakedProblem& soaked = problems_.emplace_back(of_row, inputs);
      if (!soaked.is_taken_by(row())) continue;
      any = true;
      soaked.reference.clear(nullptr);
      ASSERT_EQ(forward_by(row())(0, soaked.args(soaked.reference), nullptr), FA_OK)
          << fa_last_error() << "\n"
          << soaked.line;
      check(cudaDeviceSynchronize());
      ASSERT_EQ(check_forward(of_row, inputs, soaked.reference.get()), "");
    }
    if (!any) GTEST_SKIP() << "skipped: " << row().kernel << " takes none of the problems on this device";
    for (const SoakedProblem& soaked : problems_) {
      ASSERT_TRUE(soaked.is_taken_by(row())) << row().kernel << " does not take " << soaked.line;
    }
  }
  /// For tests of the test: the smallest, one with gaps in out, and one that fills the device.
  static std::vector<std::string> few() { return {kProblems[12], kProblems[3], kProblems[4]}; }

  std::deque<SoakedProblem> problems_;  // in the order of their lines
};

TEST_P(Soak, TwoStreamsGiveTheSameBits) {
  const std::uint64_t calls = number_from("FLASHATTN_TEST_SOAK", 2000), seed = first_seed();
  ASSERT_GE(calls, 1u);
  ASSERT_NO_FATAL_FAILURE(prepare({std::begin(kProblems), std::end(kProblems)}));
  if (IsSkipped()) return;
  std::printf("FLASHATTN_TEST_SEED=%llu FLASHATTN_TEST_SOAK=%llu\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(calls));
  ASSERT_EQ(soak_calls(problems_, calls, seed, forward_by(row())), "") << row().kernel;
  // For whoever counts the calls: bench/gpu_suite.sh does.
  std::printf("SOAK %s calls %llu\n", row_name(row()).c_str(), static_cast<unsigned long long>(calls));
}

/// The first call by which the order takes the problem.
std::uint64_t first_call_of(std::size_t problem, std::size_t problems, std::uint64_t seed) {
  Order order(problems, seed);
  std::uint64_t number = 0;
  while (order.next() != problem) ++number;
  return number;
}

// The test of the test: one bit of a reference, of its out and then of its LSE.
TEST_P(Soak, AChangedBitOfAReferenceIsFound) {
  ASSERT_NO_FATAL_FAILURE(prepare(few()));
  if (IsSkipped()) return;
  const SoakedProblem& changed = problems_[1];
  const std::uint64_t seed = first_seed();
  const std::string first =
      "first in call " + std::to_string(first_call_of(1, problems_.size(), seed)) + " of 300";
  for (const std::size_t at : {std::size_t{0}, changed.reference.lse_at()}) {
    std::byte was;
    check(cudaMemcpy(&was, changed.reference.data() + at, 1, cudaMemcpyDeviceToHost));
    const std::byte is = was ^ std::byte{1};
    check(cudaMemcpy(changed.reference.data() + at, &is, 1, cudaMemcpyHostToDevice));
    const std::string text = soak_calls(problems_, 300, seed, forward_by(row()));
    EXPECT_EQ(text.find("100 words of 32 bits differ by call 299"), 0u) << text;
    EXPECT_NE(text.find(first), std::string::npos) << text << "\nshould say: " << first;
    EXPECT_NE(text.find(changed.line), std::string::npos) << text;
    check(cudaMemcpy(changed.reference.data() + at, &was, 1, cudaMemcpyHostToDevice));
  }
  EXPECT_EQ(soak_calls(problems_, 300, seed, forward_by(row())), "");
}

// What an earlier call left does not stand for the result of one that writes nothing.
TEST_P(Soak, ACallThatWritesNothingIsFound) {
  ASSERT_NO_FATAL_FAILURE(prepare(few()));
  if (IsSkipped()) return;
  constexpr std::uint64_t kSilent = 1234;
  const Call forward = forward_by(row());
  const Call but_one = [&](std::uint64_t number, const fa_forward_args& args, cudaStream_t stream) {
    return number == kSilent ? FA_OK : forward(number, args, stream);
  };
  const std::string text = soak_calls(problems_, 3000, first_seed(), but_one);
  EXPECT_NE(text.find("differ by call 1999, first in call 1234 of 3000 on stream 0"), std::string::npos)
      << text;
}

INSTANTIATE_TEST_SUITE_P(Rows, Soak, testing::ValuesIn(soaked_rows()), RowName());

// ---- the comparison itself -------------------------------------------------------------------------------

TEST(SoakOnDevice, ComparisonCountsEveryWord) {
  if (!have_device()) GTEST_SKIP() << "skipped: no CUDA device";
  // A thread's last word, a block's, the grid's, and beyond it.
  for (const std::size_t words :
       {std::size_t{4}, std::size_t{1024}, std::size_t{1028}, std::size_t{1'000'000}}) {
    SCOPED_TRACE(std::to_string(words) + " words");
    std::vector<std::uint32_t> values(words);
    std::iota(values.begin(), values.end(), std::uint32_t{1});
    const DeviceArray<std::uint32_t> want(values);
    const std::set<std::size_t> places = {0, 1, 2, words / 2 + 1, words - 1};
    for (const std::size_t at : places) values[at] ^= 0x8000'0000u;
    const DeviceArray<std::uint32_t> got(values);

    const DeviceArray<Differences> found(std::vector<Differences>(1));
    const auto compare = [&](const DeviceArray<std::uint32_t>& with, std::uint64_t call) {
      const soak::Comparison comparison = {with.data(), want.data(), words * sizeof(std::uint32_t), call};
      check(static_cast<cudaError_t>(soak::compare(comparison, found.data(), nullptr)));
      check(cudaDeviceSynchronize());
      return found.get()[0];
    };
    EXPECT_EQ(compare(want, 3).words, 0u);
    EXPECT_EQ(compare(want, 3).first_call, kNoCall);
    EXPECT_EQ(compare(got, 9).words, places.size());
    EXPECT_EQ(compare(got, 5).words, 2 * places.size());
    EXPECT_EQ(compare(want, 4).first_call, 5u);
    EXPECT_EQ(compare(got, 7).first_call, 5u);
  }
}

// Needs no device.
TEST(SoakComparison, RefusesAPartOfSixteenBytes) {
  EXPECT_EQ(soak::compare({nullptr, nullptr, 24, 0}, nullptr, nullptr),
            static_cast<int>(cudaErrorInvalidValue));
  EXPECT_EQ(soak::compare({nullptr, nullptr, 0, 0}, nullptr, nullptr), static_cast<int>(cudaSuccess));
}

// ---- the order, without a device -------------------------------------------------------------------------

TEST(SoakOrder, TakesEveryProblemOnceAndThenAgain) {
  constexpr std::size_t kCount = std::size(kProblems);
  Order order(kCount, 1), same(kCount, 1), other(kCount, 2);
  int as_before = 0, as_another_seed = 0;
  std::vector<std::size_t> before;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::size_t> now, another;
    for (std::size_t i = 0; i < kCount; ++i) {
      now.push_back(order.next());
      another.push_back(other.next());
      ASSERT_EQ(same.next(), now.back());
    }
    as_before += now == before ? 1 : 0;
    as_another_seed += now == another ? 1 : 0;
    before = now;
    std::sort(now.begin(), now.end());
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(now[i], i);
  }
  EXPECT_EQ(as_before, 0);
  EXPECT_EQ(as_another_seed, 0);
}

// Each problem comes to each stream: a list of even length would not, without the shuffle.
TEST(SoakOrder, TakesEveryProblemOnEachStream) {
  constexpr std::size_t kCount = std::size(kProblems);
  Order order(kCount, first_seed());
  std::vector<std::array<int, kStreams>> taken(kCount);
  for (std::uint64_t number = 0; number < 2000; ++number) ++taken[order.next()][number % kStreams];
  for (const auto& of_streams : taken) {
    for (const int times : of_streams) EXPECT_GE(times, 20);
  }
}

}  // namespace
}  // namespace fa::test
