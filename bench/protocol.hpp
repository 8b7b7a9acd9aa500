/// How a time is taken: warm-up, interleaved samples, repetitions. Knows nothing of attention or of devices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fa::bench {

/// What a candidate's seconds are.
enum class Clock {
  wall,    // the host's steady clock around synchronous calls
  events,  // device events around asynchronous calls: what a caller sees
  graph,   // device events around replays of a captured graph: kernel time without host time
};

const char* name_of(Clock clock);

/// Makes `calls` calls and gives the seconds they took together. A clock wraps a call into this: wall_clock
/// here, those of a device beside the device's own code.
using TimedCalls = std::function<double(std::int64_t calls)>;

TimedCalls wall_clock(std::function<void()> call);

/// One of the things measured against each other.
struct Candidate {
  std::string name;
  Clock clock = Clock::wall;
  TimedCalls time;
};

struct Protocol {
  std::string name;
  // Warm up until both are reached, but no longer than the limit.
  std::int64_t warm_up_calls;
  double warm_up_seconds;
  double warm_up_limit;
  // A sample is as many calls as stay within both, at least one.
  std::int64_t sample_calls;
  double sample_seconds;
  // On a device's clock, calls ahead of a sample that it does not count, until with the sample's own the row
  // has had the device for so long: clocks follow power, and the rows before leave theirs behind.
  double settle_seconds;
  // Rounds; each samples every candidate once, in an order drawn anew.
  int repetitions;
  // A candidate whose rounds would take longer together takes part in fewer, at least in three. 0: no limit.
  double series_limit;
};

/// The protocol of every recorded figure.
Protocol full_protocol();

/// A shorter one, for a first look at a machine.
Protocol short_protocol();

/// For host time of asynchronous calls, some microseconds each: samples of 200 calls, 21 rounds.
Protocol host_cost_protocol();

/// "full: warm-up 25 calls and 500 ms, ..."
std::string to_string(const Protocol& protocol);

/// Rounds in which a candidate of `seconds` a call takes part.
int rounds(const Protocol& protocol, double seconds);

/// Uncounted samples ahead of each one of `sample` seconds.
int settling_samples(const Protocol& protocol, Clock clock, double sample);

/// What measuring a candidate of `seconds` a call takes in all.
double expected_seconds(const Protocol& protocol, Clock clock, double seconds);

/// One candidate's samples, in the order of the rounds.
struct Series {
  std::int64_t calls_per_sample = 0;
  std::vector<double> seconds_per_call;
};

/// Warms up and samples all candidates, interleaved. The same seed draws the same orders.
std::vector<Series> measure(const std::vector<Candidate>& candidates, const Protocol& protocol,
                            std::uint64_t seed);

}  // namespace fa::bench
