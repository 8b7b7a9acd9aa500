/// A problem's tensors in the memory of one side, and the C arguments that point to them.
#pragma once

#include <memory>

#include "tests/support/layout.hpp"
#include "tests/support/memory.hpp"
#include "tests/support/oracle.hpp"

namespace fa::bench {

class PlacedCall {
 public:
  /// Lays the inputs out as the line says. Throws where there is no memory.
  PlacedCall(const test::Problem& problem, const test::Inputs& inputs, test::Side side);

  fa_forward_args& args() { return args_; }
  /// Supplies what `version` needs. Throws what the library says of a problem that it refuses.
  void supply_workspace(fa_version version);
  /// Memory beside the library's, on the same side; 256-byte aligned, null for 0 bytes. Replaces the last
  /// one.
  void* extra_memory(std::size_t bytes);
  /// What lies in out and lse, contiguous, in logical order. Waits for the default stream.
  test::Outputs<float> read() const;

 private:
  std::unique_ptr<test::GuardedBuffer> memory(std::size_t bytes, std::size_t misalignment = 0) const;
  std::unique_ptr<test::GuardedBuffer> tensor(const test::Placed& placed, Dtype dtype) const;

  test::Problem problem_;
  test::PlacedProblem placed_;
  test::Side side_;
  std::unique_ptr<test::GuardedBuffer> q_, k_, v_, out_, lse_, workspace_,
      extra_;  // q_: all of a packed line
  fa_forward_args args_;
};

}  // namespace fa::bench
