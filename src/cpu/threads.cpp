#include "src/cpu/threads.hpp"

#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace fa::internal::cpu {

void on_threads(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> others;
  try {
    others.reserve(static_cast<size_t>(threads));
    while (static_cast<int>(others.size()) + 1 < threads) {
      others.emplace_back(work, static_cast<int>(others.size()) + 1);
    }
  } catch (const std::system_error&) {  // no more threads to be had: those that run share the work
  } catch (const std::bad_alloc&) {
  }
  work(0);
  for (std::thread& other : others) other.join();
}

}  // namespace fa::internal::cpu
