/// One copy of a problem in host memory, laid out as it says, and the C arguments that describe it.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/row_check.hpp"
#include "tests/support/layout.hpp"

namespace fa::bench {

class HostProblem {
 public:
  /// Memory for a tensor, its rows as aligned as the layout has them.
  struct Buffer {
    std::vector<std::byte> bytes;
    std::byte* data = nullptr;
    void resize(const test::Placed& placed, Dtype dtype, std::size_t misalignment);
  };

  HostProblem(const test::Problem& problem, const test::Inputs& inputs);
  HostProblem(const HostProblem&) = delete;
  HostProblem& operator=(const HostProblem&) = delete;

  fa_forward_args& args() { return args_; }
  OutputRow row(std::int64_t b, std::int64_t h, std::int64_t i) const;
  /// Makes every output byte 0xFF, which is NaN in every dtype.
  void spoil_outputs();

 private:
  test::Problem problem_;
  test::PlacedProblem placed_;
  Buffer q_, k_, v_, out_;  // q_ holds all inputs of a packed problem
  std::vector<float> lse_;  // [B, H, M]
  fa_forward_args args_;
};

}  // namespace fa::bench
