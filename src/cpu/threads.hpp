/// Work shared among threads.
#pragma once

#include <functional>

namespace fa::internal::cpu {

/// Multiply-adds that repay starting a thread: about 60 us of them on an AVX-512 core.
inline constexpr double kWorthAThread = 4e6;

/// Calls work(0) ... work(threads - 1), the first on the calling thread, and returns when all have. Where the
/// system has no more threads it calls fewer: the work is a queue that any of them can empty.
void on_threads(int threads, const std::function<void(int)>& work);

}  // namespace fa::internal::cpu
