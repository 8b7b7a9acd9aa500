/// What else computes attention on a device: the names of the baselines, and what they do not take.
#pragma once

#include <string>

#include "tests/support/problem.hpp"

namespace fa::bench {

// In RowPlan::baseline.
inline constexpr const char* kCublasSoftmax = "cublas_softmax";
inline constexpr const char* kCudnn = "cudnn";

/// Empty, or why the baseline is not asked to compute problem.passes, with its name: "cudnn: takes ...".
std::string why_no_cublas_softmax(const test::Problem& problem);
std::string why_no_cudnn(const test::Problem& problem);

}  // namespace fa::bench
