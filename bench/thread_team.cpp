#include "bench/thread_team.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

namespace fa::bench {

void run_on_threads(int threads, const std::function<void(int)>& body) {
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&body, t] { body(t); });
  body(0);
}

int default_threads() {
  if (const char* text = std::getenv("FLASHATTN_NUM_THREADS")) {
    const int asked = std::atoi(text);
    if (asked > 0) return asked;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace fa::bench
