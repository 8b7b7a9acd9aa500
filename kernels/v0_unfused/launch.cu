#include "kernels/v0_unfused/launch.hpp"

#include <algorithm>
#include <limits>

#include "kernels/launch.hpp"
#include "kernels/v0_unfused/kernel.cuh"

namespace fa::internal::v0 {
namespace {

int64_t tiles(int64_t size, int64_t block) {
  return (size + block - 1) / block;
}

// Blocks of the three launches.
struct Grids {
  int64_t scores, softmax, output;

  Grids(int64_t B, int64_t H, int64_t M, int64_t N, int64_t Dv)
      : scores(B * H * tiles(M, Config::kBlockM) * tiles(N, Config::kBlockN)),
        softmax(tiles(B * H * M, Config::kSoftmaxThreads / 32)),
        output(B * H * tiles(M, Config::kBlockM) * tiles(Dv, Config::kBlockN)) {}
};

dim3 grid(int64_t blocks) {
  return dim3(static_cast<unsigned>(blocks));
}

}  // namespace

std::string reject_forward(const ForwardProblem& problem, const DeviceProperties&) {
  if (problem.M != problem.N) {
    return "takes M = N alone, but M = " + std::to_string(problem.M) +
           " and N = " + std::to_string(problem.N);
  }
  if (problem.dtype_out != Dtype::float32)
    return "writes float32 alone, but out is " + std::string(name_of(problem.dtype_out));
  if (std::max(problem.D, problem.Dv) > int64_t{1} << 30) {
    return "takes D and Dv up to 2^30, but D = " + std::to_string(problem.D) +
           " and Dv = " + std::to_string(problem.Dv);
  }
  // In double: the product of the sizes may not fit 64 bits.
  const double scores =
      static_cast<double>(problem.B * problem.H) * static_cast<double>(problem.M * problem.N);
  if (scores > 1e12) return "stores every score, which are more than 10^12";
  const Grids grids(problem.B, problem.H, problem.M, problem.N, problem.Dv);
  if (std::max({grids.scores, grids.softmax, grids.output}) > std::numeric_limits<int32_t>::max()) {
    return "needs more than 2^31 - 1 blocks";
  }
  return "";
}

size_t forward_workspace(const ForwardProblem& problem, const DeviceProperties&, int) {
  return sizeof(float) * static_cast<size_t>(problem.B * problem.H) *
         static_cast<size_t>(problem.M * problem.N);
}

int prepare_forward(const ForwardProblem&, const DeviceProperties& device) {
  cudaError_t error = prepare_kernel<scores_kernel<Config>>(device, 0);
  if (error == cudaSuccess) error = prepare_kernel<softmax_kernel<Config>>(device, 0);
  if (error == cudaSuccess) error = prepare_kernel<output_kernel<Config>>(device, 0);
  return error;
}

int launch_forward(const ForwardParams& p, const LaunchContext& context, Dtype, Dtype) {
  const Grids grids(p.B, p.H, p.M, p.N, p.Dv);
  const dim3 block(Config::kThreads);
  const dim3 softmax_block(Config::kSoftmaxThreads);
  cudaError_t error = launch_kernel<scores_kernel<Config>>(context, grid(grids.scores), block, 0, p);
  if (error == cudaSuccess) {
    error = launch_kernel<softmax_kernel<Config>>(context, grid(grids.softmax), softmax_block, 0, p);
  }
  if (error == cudaSuccess)
    error = launch_kernel<output_kernel<Config>>(context, grid(grids.output), block, 0, p);
  return error;
}

}  // namespace fa::internal::v0
