/// Runs a problem through the public interface in guarded memory.
#pragma once

#include <string>

#include "tests/support/memory.hpp"
#include "tests/support/oracle.hpp"

namespace fa::test {

/// Outputs come back contiguous, in logical order, as fp32. lse is empty where the problem has none.
struct RunResult {
  Outputs<float> got;
  std::string
      guard_damage;  // what was written outside out, lse and workspace, or in their gaps; empty: nothing
};

/// Lays the inputs out as problem.layout says, pre-fills outputs and workspace with 0xFF (unless
/// prefill is off), puts guards round every buffer, calls fa_forward by `version` and reads back.
/// NaN lies in all gaps between rows, heads and batches of the inputs, and in their guards. Throws what the
/// library throws; std::logic_error where a refused call wrote something all the same.
///
/// Odd seeds supply the workspace, even ones leave it to the library. On a device, seeds with bit 1 set run
/// on a non-blocking stream, the others on the default one. Tensors without elements are null where bit 2 is
/// set.
RunResult run_forward(const Problem& problem, const Inputs& inputs, Version version, Side side);

/// The same with `call` in place of fa_forward: what this harness would notice, its own test plants there.
using ForwardCall = fa_status (*)(const fa_forward_args* args, fa_version version, Stream stream);
RunResult run_forward(const Problem& problem, const Inputs& inputs, Version version, Side side,
                      ForwardCall call);

/// The same of the backward pass: gradients come back contiguous, in logical order, as fp32.
struct BackwardRunResult {
  Gradients<float> got;
  std::string guard_damage;  // what was written outside dq, dk, dv and workspace, or in their gaps
};
using BackwardCall = fa_status (*)(const fa_backward_args* args, fa_version version, Stream stream);
BackwardRunResult run_backward(const Problem& problem, const BackwardInputs& inputs, Version version,
                               Side side, BackwardCall call = fa_backward);

/// Off under --no-prefill (initcheck counts a memset as initialisation). Gaps of outputs are then not
/// checked.
extern bool prefill;

/// Ends the process with status 124 if it is not destroyed within `seconds`, after writing `what` to stderr:
/// the test's name, or the problem's line.
class Watchdog {
 public:
  explicit Watchdog(double seconds, std::string what);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace fa::test
