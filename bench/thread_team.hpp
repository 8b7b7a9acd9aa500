/// The same function on several threads at once.
#pragma once

#include <functional>

namespace fa::bench {

/// Calls body(0) ... body(threads - 1), each on its own thread (body(0) on the caller's), and waits for all.
/// `body` must not throw.
void run_on_threads(int threads, const std::function<void(int)>& body);

/// FLASHATTN_NUM_THREADS where it is a positive number, else the hardware's number: what the library takes.
int default_threads();

}  // namespace fa::bench
