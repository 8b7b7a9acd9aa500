#include "bench/device/host_cost.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bench/device/clocks.hpp"
#include "bench/device/probes.hpp"

namespace fa::bench {

namespace {

constexpr std::int64_t kCallsBetweenWaits = 200;
constexpr std::size_t kBytesWhereUnknown = 64;

/// Square, small, and aligned: every rung takes it, and the device is done with it quickly.
test::Problem small_problem(Dtype dtype) {
  test::Problem problem;
  problem.dtype = dtype;
  problem.H = problem.Hk = 2;
  problem.M = problem.N = 64;
  return problem;
}

/// A call that can be made any number of times.
class Call {
 public:
  Call(Version version, Dtype dtype, const DeviceStream& stream)
      : version_(static_cast<fa_version>(version)),
        stream_(stream),
        problem_(small_problem(dtype), 0, stream),
        args_(problem_.args()),
        workspace_(workspace_bytes()) {
    args_.workspace = workspace_.data();
    args_.workspace_size = workspace_.bytes();
    detail::check(fa_forward_prepare(&args_, version_));
    make();
    stream_.wait();
  }

  void make() const { detail::check(fa_forward(&args_, version_, stream_)); }

 private:
  std::size_t workspace_bytes() const {
    std::size_t bytes = 0;
    detail::check(fa_forward_workspace_size(&args_, version_, &bytes));
    return bytes;
  }

  fa_version version_;
  const DeviceStream& stream_;
  DeviceProblem problem_;
  fa_forward_args args_;
  DeviceMemory workspace_;
};

/// Bytes of a kernel's parameters; 0 where the runtime cannot say.
std::size_t parameter_bytes(cudaGraphNode_t node) {
#if CUDART_VERSION >= 13000
  cudaKernelNodeParams kernel = {};
  if (cudaGraphKernelNodeGetParams(node, &kernel) == cudaSuccess) {
    std::size_t end = 0, offset = 0, size = 0;
    for (std::size_t i = 0; cudaFuncGetParamInfo(kernel.func, i, &offset, &size) == cudaSuccess; ++i) {
      end = std::max(end, offset + size);
    }
    cudaGetLastError();  // the index past the last parameter
    return end;
  }
  cudaGetLastError();
#else
  static_cast<void>(node);
#endif
  return 0;
}

/// Parameter bytes of every kernel that the call launches.
std::vector<std::size_t> launches_of(const Call& call, const DeviceStream& stream) {
  const cudaGraph_t graph = capture(stream, [&] { call.make(); });
  std::size_t count = 0;
  std::vector<std::size_t> launches;
  try {
    check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    if (count > 0) check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type;
      check_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
      if (type == cudaGraphNodeTypeKernel) launches.push_back(parameter_bytes(node));
    }
  } catch (...) {
    cudaGraphDestroy(graph);
    throw;
  }
  cudaGraphDestroy(graph);
  return launches;
}

/// Seconds of the host alone: the waits between batches are not counted.
template <class Make>
TimedCalls host_clock(const DeviceStream& stream, Make make) {
  return [&stream, make](std::int64_t calls) {
    double total = 0;
    for (std::int64_t done = 0; done < calls;) {
      const std::int64_t batch = std::min(calls - done, kCallsBetweenWaits);
      const auto start = std::chrono::steady_clock::now();
      for (std::int64_t i = 0; i < batch; ++i) make();
      total += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      stream.wait();
      done += batch;
    }
    return total;
  };
}

std::string note(const std::vector<std::size_t>& bytes, const std::vector<EmptyKernel>& kernels) {
  std::string text = std::to_string(bytes.size()) + (bytes.size() == 1 ? " launch" : " launches");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text += std::string(i == 0 ? ", parameter bytes " : " + ") +
            (bytes[i] == 0 ? "unknown" : std::to_string(bytes[i])) +
            " (bare: " + std::to_string(kernels[i].parameter_bytes) + ")";
  }
  return text;
}

}  // namespace

HostCost device_host_cost(Version version, Dtype dtype, const DeviceStream& stream) {
  const auto call = std::make_shared<Call>(version, dtype, stream);
  const std::vector<std::size_t> bytes = launches_of(*call, stream);
  std::vector<EmptyKernel> kernels;
  for (const std::size_t b : bytes) kernels.push_back(empty_kernel(b == 0 ? kBytesWhereUnknown : b));
  const auto bare = [&stream, kernels] {
    for (const EmptyKernel& kernel : kernels) check_cuda(kernel.launch(stream), "a bare launch");
  };
  bare();
  stream.wait();
  return {{"fa_forward", Clock::wall, host_clock(stream, [call] { call->make(); })},
          {"bare", Clock::wall, host_clock(stream, bare)},
          note(bytes, kernels),
          version,
          dtype};
}

}  // namespace fa::bench
