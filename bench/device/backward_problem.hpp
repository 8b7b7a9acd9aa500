/// One copy of a backward problem in device memory: the forward problem, dout, and the gradients.
#pragma once

#include "bench/device/device_problem.hpp"
#include "bench/gradient_check.hpp"

namespace fa::bench {

class BackwardProblem {
 public:
  /// Data of the problem's kind, made on the device. out and lse are not computed: forward().args() says
  /// where the backward pass expects them. The stream must outlive it.
  BackwardProblem(const test::Problem& problem, const DeviceStream& stream);

  /// What the problem comes to: out in the inputs' element type, and an LSE.
  const test::Problem& problem() const { return problem_; }
  const DeviceProblem& forward() const { return forward_; }
  const fa_backward_args& args() const { return args_; }

  /// Makes every byte of the gradients 0xFF, which is NaN in every dtype. Asynchronous.
  void spoil_gradients();
  /// Of everything that backward reads and writes. Waits for the stream.
  GradientReader reader() const;

 private:
  test::Problem problem_;
  test::PlacedBackward placed_;
  const DeviceStream& stream_;
  DeviceProblem forward_;
  DeviceMemory dout_, dq_, dk_, dv_;  // dq_ holds all gradients of a packed problem
  fa_backward_args args_;
};

}  // namespace fa::bench
