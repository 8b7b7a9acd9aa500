// The parts of the bench that decide what a figure means: statistics, protocol, command line, row check.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bench/options.hpp"
#include "bench/problem_sets.hpp"
#include "bench/protocol.hpp"
#include "bench/row_check.hpp"
#include "bench/statistics.hpp"
#include "bench/work.hpp"

namespace fa::bench {

namespace {

// ---- statistics ------------------------------------------------------------------------------------------

TEST(Statistics, MedianOfOddEvenAndNone) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(Statistics, PairsStopAtTheShorterSeries) {
  EXPECT_EQ(paired_ratios({2, 6, 9}, {1, 2}), (std::vector<double>{2, 3}));
  EXPECT_EQ(paired_differences({2, 6}, {1, 2, 3}), (std::vector<double>{1, 4}));
}

TEST(Statistics, NoiseIsTheMedianDistanceFromOne) {
  EXPECT_NEAR(distance_from_one({0.9, 1.02, 1.01}), 0.02, 1e-12);
}

// ---- protocol --------------------------------------------------------------------------------------------

/// A candidate whose calls take the same time always, and what was asked of it.
struct Recorded {
  double seconds;
  std::vector<std::int64_t> asked;  // calls, in order

  Candidate candidate(const std::string& name) {
    return {name, Clock::wall, [this](std::int64_t calls) {
              asked.push_back(calls);
              return seconds * static_cast<double>(calls);
            }};
  }
};

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const std::int64_t value : values) total += value;
  return total;
}

TEST(Protocol, WarmsUpUntilBothCallsAndSecondsAreReached) {
  for (const double seconds : {1e-5, 1e-3, 0.03}) {
    Recorded recorded{seconds, {}};
    const std::vector<Series> series = measure({recorded.candidate("a")}, full_protocol(), 1);
    const std::int64_t samples =
        static_cast<std::int64_t>(series[0].seconds_per_call.size()) * series[0].calls_per_sample;
    const std::int64_t warm_up = sum(recorded.asked) - samples;
    EXPECT_GE(warm_up, 25) << seconds;
    EXPECT_GE(static_cast<double>(warm_up) * seconds, 0.5 * 0.999) << seconds;
    EXPECT_LE(static_cast<double>(warm_up) * seconds, 2.0 + seconds) << seconds;
  }
}

TEST(Protocol, ASlowCallEndsTheWarmUpAtItsLimit) {
  Recorded recorded{0.9, {}};
  const std::vector<Series> series = measure({recorded.candidate("a")}, full_protocol(), 1);
  EXPECT_EQ(series[0].calls_per_sample, 1);
  EXPECT_LE(recorded.asked.size(), 3u + 7u);
}

TEST(Protocol, SamplesAreTheLesserOfFiftyCallsAndAQuarterSecond) {
  const std::map<double, std::int64_t> expected = {{1e-6, 50}, {4.9e-3, 50}, {0.011, 22}, {0.3, 1}};
  for (const auto& [seconds, calls] : expected) {
    Recorded recorded{seconds, {}};
    const std::vector<Series> series = measure({recorded.candidate("a")}, full_protocol(), 1);
    EXPECT_EQ(series[0].calls_per_sample, calls) << seconds;
    EXPECT_EQ(series[0].seconds_per_call.size(), 7u);
    for (const double s : series[0].seconds_per_call) EXPECT_NEAR(s, seconds, 1e-9);
  }
}

// Device clocks follow the power of what ran before, so that the last of a stretch of its own row's samples
// counts.
TEST(Protocol, ASampleOnADeviceEndsATenthOfASecondOfItsRow) {
  constexpr double kSeconds = 4e-4;    // 50 calls: 20 ms
  std::vector<std::string> stretches;  // "aaaaa": samples of one candidate, one after the other
  const auto candidate = [&stretches](char name, Clock clock) {
    return Candidate{std::string(1, name), clock, [&stretches, name](std::int64_t calls) {
                       if (stretches.empty() || stretches.back()[0] != name) stretches.emplace_back();
                       stretches.back() += name;
                       const double slower = 1.0 + 0.01 * static_cast<double>(stretches.back().size());
                       return kSeconds * slower * static_cast<double>(calls);
                     }};
  };
  const std::vector<Candidate> candidates = {candidate('a', Clock::graph), candidate('b', Clock::events),
                                             candidate('c', Clock::wall)};
  const std::vector<Series> series = measure(candidates, full_protocol(), 1);
  ASSERT_EQ(series[0].calls_per_sample, 50);
  int whole =
      0;  // stretches of a round, by which a neighbour of the same name in the next round may be longer
  for (size_t i = 3; i < stretches.size(); ++i) {
    const size_t samples = stretches[i][0] == 'c' ? 1 : 5;
    EXPECT_EQ(stretches[i].size() % samples, 0u) << stretches[i];
    whole += stretches[i].size() == samples;
  }
  EXPECT_GE(whole, 7);
  const auto first_of_round = [&](const Series& of, double samples) {
    int count = 0;
    for (const double seconds : of.seconds_per_call) {
      count += std::abs(seconds / kSeconds - (1 + 0.01 * samples)) < 1e-6;
    }
    return count;
  };
  EXPECT_GE(first_of_round(series[0], 5), 4);
  EXPECT_GE(first_of_round(series[1], 5), 4);
  EXPECT_GE(first_of_round(series[2], 1), 4);
  EXPECT_EQ(settling_samples(host_cost_protocol(), Clock::graph, 1e-3), 0);
}

TEST(Protocol, RoundsInterleaveAllCandidatesInChangingOrder) {
  std::string order;
  const auto candidate = [&order](char name) {
    return Candidate{std::string(1, name), Clock::wall, [&order, name](std::int64_t calls) {
                       order += name;
                       return 0.3 * static_cast<double>(calls);
                     }};
  };
  measure({candidate('a'), candidate('b'), candidate('c')}, full_protocol(), 5);
  const std::string rounds_only = order.substr(order.size() - 21);
  bool changes = false;
  for (std::size_t round = 0; round < 7; ++round) {
    const std::string one = rounds_only.substr(3 * round, 3);
    for (const char name : {'a', 'b', 'c'}) EXPECT_NE(one.find(name), std::string::npos) << one;
    changes |= one != rounds_only.substr(0, 3);
  }
  EXPECT_TRUE(changes);
}

TEST(Protocol, OnlyTheShortOneTakesFewerRounds) {
  EXPECT_EQ(rounds(full_protocol(), 5.0), 7);
  EXPECT_EQ(rounds(short_protocol(), 0.001), 7);
  EXPECT_EQ(rounds(short_protocol(), 5.0), 3);
}

TEST(Protocol, HostCostBatchesHaveAtMostTwoHundredCalls) {
  EXPECT_LE(host_cost_protocol().sample_calls, 200);
}

// ---- command line ----------------------------------------------------------------------------------------

Options parse(std::vector<std::string> words, std::vector<std::string>* left = nullptr) {
  words.insert(words.begin(), "bench_attention");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  Options options = parse_options(argc, argv.data());
  if (left != nullptr) left->assign(argv.begin(), argv.begin() + argc);
  return options;
}

std::string usage_error(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(CommandLine, ReadsEveryFlagInBothSpellings) {
  const Options options = parse({"--problem", "fp32 S64", "--problem=fp16 S32", "--problems", "ladder",
                                 "--version=V2,cpu", "--threads", "1,2", "--side=device", "--mode", "both",
                                 "--protocol=short", "--json", "out.json", "--full", "--list"});
  EXPECT_EQ(options.problem_lines, (std::vector<std::string>{"fp32 S64", "fp16 S32"}));
  EXPECT_EQ(options.problem_files, std::vector<std::string>{"ladder"});
  EXPECT_EQ(options.selection.versions, (std::vector<Version>{V2, CPU}));
  EXPECT_EQ(options.selection.threads, (std::vector<int>{1, 2}));
  EXPECT_EQ(options.selection.clocks, (std::vector<Clock>{Clock::graph, Clock::events}));
  EXPECT_EQ(options.side, "device");
  EXPECT_EQ(options.protocol, "short");
  EXPECT_EQ(options.json, "out.json");
  EXPECT_TRUE(options.full);
  EXPECT_TRUE(options.list);
}

TEST(CommandLine, RefusesCsvAheadOfTheRun) {
  const std::string text = "rows have counters of their own, which CSV cannot hold: use json";
  EXPECT_EQ(usage_error({"--benchmark_format=csv"}), text);
  EXPECT_EQ(usage_error({"--benchmark_out=x.csv", "--benchmark_out_format=csv"}), text);
  EXPECT_EQ(usage_error({"--benchmark_format=json"}), "");
}

TEST(CommandLine, AblationsGoWithoutWhatPicksOtherRows) {
  const Options options = parse({"--ablations", "v4,V6", "--side", "device", "--mode", "both"});
  EXPECT_EQ(options.selection.ablations, (std::vector<Version>{V4, V6}));
  EXPECT_TRUE(options.selection.versions.empty());
  EXPECT_EQ(usage_error({"--ablations", "v9"}), "--ablations: 'v9' is none of V0 ... V8, CPU, Auto");
  const std::string text =
      "--ablations measures rungs of a device and their variants: without --side host, --threads, --version";
  EXPECT_EQ(usage_error({"--ablations=V4", "--side", "host"}), text);
  EXPECT_EQ(usage_error({"--threads", "2", "--ablations=V4"}), text);
  EXPECT_EQ(usage_error({"--ablations=V4", "--version", "V4"}), text);
}

TEST(CommandLine, CandidatesAreAblationsOfAnotherKind) {
  const Options options = parse({"--candidates", "v7"});
  EXPECT_EQ(options.selection.ablations, std::vector<Version>{V7});
  EXPECT_TRUE(options.selection.candidates);
  EXPECT_FALSE(parse({"--ablations", "V7"}).selection.candidates);
  EXPECT_EQ(usage_error({"--candidates", "V7", "--ablations", "V7"}),
            "--ablations and --candidates measure different rows: one of them");
  EXPECT_EQ(usage_error({"--candidates=V7", "--threads", "2"}),
            "--candidates measures rungs of a device and their variants: without --side host, --threads, "
            "--version");
}

TEST(CommandLine, LeavesGoogleBenchmarksFlags) {
  std::vector<std::string> left;
  parse({"--benchmark_filter=V2", "--full"}, &left);
  EXPECT_EQ(left, (std::vector<std::string>{"bench_attention", "--benchmark_filter=V2"}));
}

TEST(CommandLine, NamesTheWordThatMeansNothing) {
  EXPECT_EQ(usage_error({"--fast"}), "unknown flag '--fast'");
  EXPECT_EQ(usage_error({"--problem"}), "--problem needs a value");
  EXPECT_EQ(usage_error({"--full=1"}), "--full takes no value");
  EXPECT_EQ(usage_error({"--mode", "wall"}), "--mode: 'wall' is not graph or events or both");
  EXPECT_EQ(usage_error({"--threads", "0"}), "--threads: '0' is not a number from 1 to 4096");
  EXPECT_EQ(usage_error({"--version", "V9"}), "--version: 'V9' is none of V0 ... V8, CPU, Auto");
}

// ---- problems --------------------------------------------------------------------------------------------

TEST(ProblemSets, EveryFileThatComesAlongCanBeRead) {
  for (const char* name : {"host_sweep", "ladder", "targets_graph", "targets_forward", "gpt2_small",
                           "llama3_8b", "mistral_7b", "gemma2_9b", "qwen2_5_7b"}) {
    const ProblemSet set = read_problem_set(name, problem_folders(""));
    EXPECT_EQ(set.name, name);
    std::map<std::string, int> names;
    for (const test::NamedProblem& point : set.points) {
      EXPECT_EQ(++names[point.name], 1) << name << ": " << point.name;
      EXPECT_EQ(point.name.find_first_of(" /"), std::string::npos) << point.name;
    }
    EXPECT_FALSE(names.empty()) << name;
  }
}

TEST(Work, CountsThoseKeysThatSomeQuerySees) {
  const test::Problem full = test::parse_problem("fp16 B2 H4/2 M8 N64 D16 no-lse");
  EXPECT_EQ(least_bytes(full), 2.0 * (2 * 4 * 8 * 32 + 2 * 2 * 64 * 32));
  const test::Problem window = test::parse_problem("fp16 B2 H4/2 M1 N64 D16 window:9,0 no-lse");
  EXPECT_EQ(least_bytes(window), 2.0 * (2 * 4 * 1 * 32 + 2 * 2 * 10 * 32));
}

// ---- row check -------------------------------------------------------------------------------------------

class RowCheck : public testing::TestWithParam<const char*> {
 protected:
  const test::Problem problem_ = test::parse_problem(GetParam());
  const test::Inputs inputs_ = test::make_inputs(problem_);
  const test::Outputs<float> right_ = test::yardstick_forward(problem_, inputs_);

  OutputRow row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t index = (b * problem_.H + h) * problem_.M + i;
    const auto first = right_.out.begin() + index * problem_.Dv;
    return {{first, first + problem_.Dv}, right_.lse[static_cast<std::size_t>(index)]};
  }
  std::string check(Rule rule, const RowReader& read) const {
    return check_rows(problem_, input_reader(problem_, inputs_), read, rule);
  }
};

TEST_P(RowCheck, TakesWhatIsRightByBothRules) {
  const auto read = [this](std::int64_t b, std::int64_t h, std::int64_t i) { return row(b, h, i); };
  EXPECT_EQ(check(Rule::house, read), "");
  if (problem_.dtype != Dtype::float32) {
    EXPECT_EQ(check(Rule::sixteen_bit_baseline, read), "");
  }
}

TEST_P(RowCheck, RefusesWhatIsWrong) {
  const auto scaled = [this](std::int64_t b, std::int64_t h, std::int64_t i) {
    OutputRow result = row(b, h, i);
    for (float& value : result.out) value *= 1.1f;
    return result;
  };
  const auto unwritten = [this](std::int64_t b, std::int64_t h, std::int64_t i) {
    OutputRow result = row(b, h, i);
    result.out[0] = std::nanf("");
    return result;
  };
  const auto shifted = [this](std::int64_t b, std::int64_t h, std::int64_t i) {
    OutputRow result = row(b, h, i);
    result.lse += 1;
    return result;
  };
  for (const Rule rule : {Rule::house, Rule::sixteen_bit_baseline}) {
    if (rule == Rule::sixteen_bit_baseline && problem_.dtype == Dtype::float32) continue;
    EXPECT_NE(check(rule, scaled), "");
    EXPECT_NE(check(rule, unwritten), "");
    EXPECT_NE(check(rule, shifted), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, RowCheck,
                         testing::Values("fp32 B2 H4/2 M40 N70 D32 causal", "fp16 B1 H2 S96 D64",
                                         "bf16 B2 H2/1 S64 D64 causal"));

}  // namespace

}  // namespace fa::bench
