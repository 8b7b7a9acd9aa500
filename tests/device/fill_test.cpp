/// The fill room on a device: a room's objects link, load and run.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/device/fill/launch.hpp"

namespace fa::test {
namespace {

bool no_device() {
  int count = 0;
  const bool none = cudaGetDeviceCount(&count) != cudaSuccess || count == 0;
  cudaGetLastError();
  return none;
}

struct Case {
  Dtype dtype;
  int head_dim;
};

class Fill : public testing::TestWithParam<Case> {};

TEST_P(Fill, WritesEveryElementAndNothingElse) {
  if (no_device()) GTEST_SKIP() << "skipped: no CUDA device";
  const auto [dtype, head_dim] = GetParam();
  const int64_t rows = 37;
  const float first = 3.0f;
  const size_t bytes = static_cast<size_t>(rows * head_dim) * size_of(dtype);
  const size_t guard = 4096;

  std::vector<unsigned char> host(bytes + 2 * guard);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, host.size()), cudaSuccess);
  ASSERT_EQ(cudaMemset(memory, 0xFF, host.size()), cudaSuccess);
  const fill::Params params = {.out = static_cast<char*>(memory) + guard,
                               .rows = rows,
                               .head_dim = head_dim,
                               .dtype = dtype,
                               .first = first};
  EXPECT_EQ(fill::launch(params, nullptr), static_cast<int>(cudaSuccess));
  ASSERT_EQ(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);

  for (size_t i = 0; i < guard; ++i) {
    ASSERT_EQ(host[i], 0xFF) << "before the output, byte " << i;
    ASSERT_EQ(host[guard + bytes + i], 0xFF) << "after the output, byte " << i;
  }
  for (int64_t i = 0; i < rows * head_dim; ++i) {
    const unsigned char* element = host.data() + guard + static_cast<size_t>(i) * size_of(dtype);
    float got = 0.0f;
    if (dtype == Dtype::float32) {
      std::memcpy(&got, element, sizeof got);
    } else {
      half bits;
      std::memcpy(&bits, element, sizeof bits);
      got = static_cast<float>(bits);
    }
    ASSERT_EQ(got, first + static_cast<float>(i % head_dim)) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Instances, Fill,
                         testing::Values(Case{Dtype::float32, 64}, Case{Dtype::float16, 64},
                                         Case{Dtype::float16, 128}),
                         [](const testing::TestParamInfo<Case>& c) {
                           return std::string(name_of(c.param.dtype)) + "_d" +
                                  std::to_string(c.param.head_dim);
                         });

// The switch knows what was not instantiated. Needs no device.
TEST(FillSwitch, RefusesWhatHasNoInstance) {
  const fill::Params params = {
      .out = nullptr, .rows = 1, .head_dim = 96, .dtype = Dtype::float16, .first = 0.0f};
  EXPECT_EQ(fill::launch(params, nullptr), static_cast<int>(cudaErrorInvalidValue));
}

}  // namespace
}  // namespace fa::test
