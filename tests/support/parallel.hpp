/// A loop over independent indices, on as many of the machine's threads as it is worth.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace fa::test {

/// Calls work(0) ... work(count - 1), each once, in any order. work must not throw. `operations`: about how
/// many additions all of it takes. To start a thread and wait for its end costs as much as a million of them,
/// and more where many processes test at once, so that a small loop stays on the caller's thread.
template <class Work>
void parallel_for(std::int64_t count, double operations, const Work& work) {
  constexpr double kWorthAThread = 4e6;
  const std::int64_t hardware = std::max(1u, std::thread::hardware_concurrency());
  const auto worth = static_cast<std::int64_t>(std::min(operations / kWorthAThread, 1e6));
  std::atomic<std::int64_t> next{0};
  const auto drain = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> helpers;
  for (std::int64_t t = 1; t < std::min({hardware, count, worth}); ++t) helpers.emplace_back(drain);
  drain();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace fa::test
