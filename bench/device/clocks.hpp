/// The device's clocks, by events on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "bench/protocol.hpp"

namespace fa::bench {

/// Enqueues call number i on the stream; i counts from 0 in every sample.
using Enqueue = std::function<void(std::int64_t i)>;

/// Clock::events: calls made one after the other, as a caller makes them. Host time shows where a call takes
/// less than the host needs to make it.
TimedCalls event_clock(cudaStream_t stream, Enqueue enqueue);

/// Clock::graph: the calls of a sample are captured in one CUDA graph, at the first sample of that length,
/// and replayed behind a kernel that keeps the device busy while the host launches it. No host time.
/// A call must have run once outside a capture before.
TimedCalls graph_clock(cudaStream_t stream, Enqueue enqueue);

/// By the clock's name.
TimedCalls device_clock(Clock clock, cudaStream_t stream, Enqueue enqueue);

/// Captures enqueue() on the stream. The caller destroys the graph.
cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& enqueue);

}  // namespace fa::bench
