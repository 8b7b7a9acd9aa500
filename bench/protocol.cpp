#include "bench/protocol.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <random>
#include <utility>

namespace fa::bench {

const char* name_of(Clock clock) {
  switch (clock) {
    case Clock::wall:
      return "wall";
    case Clock::events:
      return "events";
    case Clock::graph:
      return "graph";
  }
  return "unknown clock";
}

TimedCalls wall_clock(std::function<void()> call) {
  return [call = std::move(call)](std::int64_t calls) {
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
}

Protocol full_protocol() {
  return {.name = "full",
          .warm_up_calls = 25,
          .warm_up_seconds = 0.5,
          .warm_up_limit = 2.0,
          .sample_calls = 50,
          .sample_seconds = 0.25,
          .settle_seconds = 0.1,
          .repetitions = 7,
          .series_limit = 0};
}

Protocol short_protocol() {
  return {.name = "short",
          .warm_up_calls = 3,
          .warm_up_seconds = 0.05,
          .warm_up_limit = 0.2,
          .sample_calls = 50,
          .sample_seconds = 0.04,
          .settle_seconds = 0.05,
          .repetitions = 7,
          .series_limit = 1.5};
}

Protocol host_cost_protocol() {
  return {.name = "host cost",
          .warm_up_calls = 200,
          .warm_up_seconds = 0.005,
          .warm_up_limit = 0.1,
          .sample_calls = 200,
          .sample_seconds = 0.25,
          .settle_seconds = 0,
          .repetitions = 21,
          .series_limit = 0};
}

std::string to_string(const Protocol& p) {
  char text[320];
  std::snprintf(
      text, sizeof text,
      "%s: warm-up %lld calls and %.0f ms, at most %.0f ms; samples of min(%lld calls, %.0f ms), at "
      "least one call; median of %d interleaved rounds",
      p.name.c_str(), static_cast<long long>(p.warm_up_calls), 1e3 * p.warm_up_seconds, 1e3 * p.warm_up_limit,
      static_cast<long long>(p.sample_calls), 1e3 * p.sample_seconds, p.repetitions);
  std::string result = text;
  if (p.settle_seconds > 0) {
    std::snprintf(text, sizeof text, ", on a device each sample at the end of %.0f ms of its row",
                  1e3 * p.settle_seconds);
    result += text;
  }
  if (p.series_limit > 0) {
    std::snprintf(text, sizeof text, ", fewer (at least 3) where their samples would take over %.1f s",
                  p.series_limit);
    result += text;
  }
  return result;
}

namespace {

std::int64_t calls_per_sample(const Protocol& protocol, double seconds) {
  const double fit = seconds > 0 ? std::floor(protocol.sample_seconds / seconds) : 1e9;
  return std::clamp<std::int64_t>(fit < 1e9 ? static_cast<std::int64_t>(fit) : protocol.sample_calls, 1,
                                  protocol.sample_calls);
}

/// Seconds a call takes, from the last and longest stretch of the warm-up.
double warm_up(const Candidate& candidate, const Protocol& protocol) {
  std::int64_t calls = 0, stretch = 1;
  double total = 0, per_call = 0;
  while ((calls < protocol.warm_up_calls || total < protocol.warm_up_seconds) &&
         total < protocol.warm_up_limit) {
    const double seconds = candidate.time(stretch);
    per_call = seconds / static_cast<double>(stretch);
    calls += stretch;
    total += seconds;
    // Doubling reaches microsecond calls quickly; the bound keeps the last stretch inside the limit.
    const double left = std::max(0.0, protocol.warm_up_limit - total);
    const double fit = per_call > 0 ? left / per_call : 1e9;
    stretch = std::max<std::int64_t>(1, std::min(2 * stretch, static_cast<std::int64_t>(std::min(fit, 1e9))));
  }
  return per_call;
}

}  // namespace

int rounds(const Protocol& protocol, double seconds) {
  if (protocol.series_limit <= 0) return protocol.repetitions;
  const double sample = seconds * static_cast<double>(calls_per_sample(protocol, seconds));
  if (sample * protocol.repetitions <= protocol.series_limit) return protocol.repetitions;
  const int fit = static_cast<int>(protocol.series_limit / sample);
  return std::clamp(fit, std::min(3, protocol.repetitions), protocol.repetitions);
}

int settling_samples(const Protocol& protocol, Clock clock, double sample) {
  if (clock == Clock::wall || sample <= 0) return 0;
  // The bound is for samples that measured as next to nothing.
  return static_cast<int>(std::min(1e4, std::ceil(std::max(0.0, protocol.settle_seconds - sample) / sample)));
}

double expected_seconds(const Protocol& protocol, Clock clock, double seconds) {
  const double wanted =
      std::max(static_cast<double>(protocol.warm_up_calls) * seconds, protocol.warm_up_seconds);
  const double warm = std::max(seconds, std::min(wanted, protocol.warm_up_limit));
  const double sample = seconds * static_cast<double>(calls_per_sample(protocol, seconds));
  const double settle = clock == Clock::wall ? 0 : protocol.settle_seconds;
  return warm + rounds(protocol, seconds) * std::max(sample, settle);
}

std::vector<Series> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            std::uint64_t seed) {
  std::vector<Series> series(candidates.size());
  std::vector<int> takes_part(candidates.size()), settling(candidates.size());
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const double seconds = warm_up(candidates[c], protocol);
    series[c].calls_per_sample = calls_per_sample(protocol, seconds);
    takes_part[c] = rounds(protocol, seconds);
    settling[c] = settling_samples(protocol, candidates[c].clock,
                                   seconds * static_cast<double>(series[c].calls_per_sample));
  }

  std::mt19937_64 random(seed);
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; round < protocol.repetitions; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t c : order) {
      if (round >= takes_part[c]) continue;
      const std::int64_t calls = series[c].calls_per_sample;
      for (int i = 0; i < settling[c]; ++i) candidates[c].time(calls);
      series[c].seconds_per_call.push_back(candidates[c].time(calls) / static_cast<double>(calls));
    }
  }
  return series;
}

}  // namespace fa::bench
