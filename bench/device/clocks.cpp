#include "bench/device/clocks.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bench/device/cuda.hpp"
#include "bench/device/probes.hpp"

namespace fa::bench {

namespace {

// Longer stretches (a warm-up's) are several replays.
constexpr std::int64_t kMostCallsInGraph = 64;

class Stopwatch {
 public:
  Stopwatch() {
    check_cuda(cudaEventCreate(&start_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }

  void start(cudaStream_t stream) { check_cuda(cudaEventRecord(start_, stream), "cudaEventRecord"); }
  /// Waits, and gives the seconds between.
  double stop(cudaStream_t stream) {
    check_cuda(cudaEventRecord(stop_, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(stop_), "a timed call: cudaEventSynchronize");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start_, stop_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

/// A graph of some calls, ready to run.
class Replay {
 public:
  Replay(cudaStream_t stream, const Enqueue& enqueue, std::int64_t calls) {
    const cudaGraph_t graph = capture(stream, [&] {
      for (std::int64_t i = 0; i < calls; ++i) enqueue(i);
    });
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(error, "cudaGraphInstantiate");
    check_cuda(cudaGraphUpload(exec_, stream), "cudaGraphUpload");
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }

  void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

class GraphClock {
 public:
  GraphClock(cudaStream_t stream, Enqueue enqueue) : stream_(stream), enqueue_(std::move(enqueue)) {}

  double time(std::int64_t calls) {
    const std::int64_t whole = std::min(calls, kMostCallsInGraph);
    const Replay* const rest = calls % whole == 0 ? nullptr : &replay(calls % whole);
    const Replay& many = replay(whole);
    spin(stream_);
    stopwatch_.start(stream_);
    for (std::int64_t done = whole; done <= calls; done += whole) many.launch(stream_);
    if (rest != nullptr) rest->launch(stream_);
    return stopwatch_.stop(stream_);
  }

 private:
  const Replay& replay(std::int64_t calls) {
    std::unique_ptr<Replay>& slot = replays_[calls];
    if (!slot) slot = std::make_unique<Replay>(stream_, enqueue_, calls);
    return *slot;
  }

  cudaStream_t stream_;
  Enqueue enqueue_;
  Stopwatch stopwatch_;
  std::map<std::int64_t, std::unique_ptr<Replay>> replays_;  // by number of calls
};

}  // namespace

cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& enqueue) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    // The capture must end whatever happened in it.
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

TimedCalls event_clock(cudaStream_t stream, Enqueue enqueue) {
  return [stream, enqueue = std::move(enqueue), watch = std::make_shared<Stopwatch>()](std::int64_t calls) {
    watch->start(stream);
    for (std::int64_t i = 0; i < calls; ++i) enqueue(i);
    return watch->stop(stream);
  };
}

TimedCalls graph_clock(cudaStream_t stream, Enqueue enqueue) {
  return [clock = std::make_shared<GraphClock>(stream, std::move(enqueue))](std::int64_t calls) {
    return clock->time(calls);
  };
}

TimedCalls device_clock(Clock clock, cudaStream_t stream, Enqueue enqueue) {
  switch (clock) {
    case Clock::events:
      return event_clock(stream, std::move(enqueue));
    case Clock::graph:
      return graph_clock(stream, std::move(enqueue));
    case Clock::wall:
      break;
  }
  throw std::logic_error("no such clock on a device");
}

}  // namespace fa::bench
