/// A loop over independent indices, on all of the machine's threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace fa::test {

/// Calls work(0) ... work(count - 1), each once, in any order. work must not throw.
template <class Work>
void parallel_for(std::int64_t count, const Work& work) {
  std::atomic<std::int64_t> next{0};
  const auto drain = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  };
  const std::int64_t hardware = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  for (std::int64_t t = 1; t < std::min(hardware, count); ++t) helpers.emplace_back(drain);
  drain();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace fa::test
