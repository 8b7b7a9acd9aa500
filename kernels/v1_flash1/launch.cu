#include "kernels/v1_flash1/launch.hpp"

#include <algorithm>
#include <limits>

#include "kernels/launch.hpp"
#include "kernels/v1_flash1/kernel.cuh"

namespace fa::internal::v1 {
namespace {

int64_t shared_bytes(int64_t D, int64_t Dv) {
  constexpr int64_t kFar = 1 << 20;  // no device has that much: the sum stays an int
  return int64_t{sizeof(float)} * SharedTiles<Config>::floats(static_cast<int>(std::min(D, kFar)),
                                                              static_cast<int>(std::min(Dv, kFar)));
}

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  if (problem.dtype_out != Dtype::float32)
    return "writes float32 alone, but out is " + std::string(name_of(problem.dtype_out));
  const int64_t bytes = shared_bytes(problem.D, problem.Dv);
  if (bytes > device.shared_memory_per_block) {
    return "D = " + std::to_string(problem.D) + " and Dv = " + std::to_string(problem.Dv) + " need " +
           std::to_string(bytes) + " bytes of shared memory, and a block has " +
           std::to_string(device.shared_memory_per_block);
  }
  if (problem.B * problem.H > std::numeric_limits<int32_t>::max()) return "needs more than 2^31 - 1 blocks";
  return "";
}

size_t forward_workspace(const ForwardProblem& problem, const DeviceProperties&, int) {
  return 2 * sizeof(float) * static_cast<size_t>(problem.B * problem.H * problem.M);  // m and l
}

int prepare_forward(const ForwardProblem& problem, const DeviceProperties& device) {
  return prepare_kernel<forward_kernel<Config>>(device,
                                                static_cast<int>(shared_bytes(problem.D, problem.Dv)));
}

int launch_forward(const ForwardParams& p, const LaunchContext& context, Dtype, Dtype) {
  const dim3 grid(static_cast<unsigned>(p.B) * static_cast<unsigned>(p.H));
  const int bytes = static_cast<int>(shared_bytes(p.D, p.Dv));
  return launch_kernel<forward_kernel<Config>>(context, grid, dim3(Config::kThreads), bytes, p);
}

}  // namespace fa::internal::v1
