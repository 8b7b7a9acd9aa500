/// The kernel table: the one list of what exists. Choice, explain, the README's matrix, tests and bench
/// all read it. Adding a kernel is one room and one row.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "kernels/params.hpp"

namespace fa::internal {

/// What the forward pass and its rows are made of.
struct Forward {
  static constexpr Pass kPass = Pass::forward;
  using Args = fa_forward_args;
  using Problem = ForwardProblem;
  using Params = ForwardParams;
  using Reject = RejectForward;
  using Workspace = ForwardWorkspace;
  using Prepare = PrepareForward;
  using Launch = LaunchForward;

  /// Auto passes over rows on a device that need more workspace than this: 256 MB. One stores every score.
  static constexpr size_t kAutoWorkspaceLimit = 256'000'000;

  /// Element type of what the pass writes.
  static Dtype dtype_written(const Problem& problem) { return problem.dtype_out; }
  /// Anything the pass writes has elements.
  static bool has_work(const Problem& problem) { return problem.B > 0 && problem.M > 0; }
};

/// The same of the backward pass.
struct Backward {
  static constexpr Pass kPass = Pass::backward;
  using Args = fa_backward_args;
  using Problem = BackwardProblem;
  using Params = BackwardParams;
  using Reject = RejectBackward;
  using Workspace = BackwardWorkspace;
  using Prepare = PrepareBackward;
  using Launch = LaunchBackward;

  /// No row stores scores: what a row needs grows as the gradients do.
  static constexpr size_t kAutoWorkspaceLimit = std::numeric_limits<size_t>::max();

  static Dtype dtype_written(const Problem& problem) { return problem.dtype_gradient; }
  /// Where M or N is 0 the gradients that have elements become 0.
  static bool has_work(const Problem& problem) { return problem.B > 0 && (problem.M > 0 || problem.N > 0); }
};

/// A row of one of them.
template <class P>
struct Row {
  Version version;
  Dtype dtype;
  const char* name;           // "v2_flash2"
  const char* limits;         // one line, for people: what it takes
  bool on_device;             // runs on a CUDA device; else on the host
  bool built;                 // this build holds its code
  const char* architectures;  // of a device row: what its code was built for, "80-real,90"
  const char* stand_in;       // name of the row that serves what this one rejects, or null

  typename P::Reject* reject;
  typename P::Workspace* workspace;
  typename P::Prepare* prepare;  // null: nothing to do
  typename P::Launch* launch;
};
using ForwardRow = Row<Forward>;
using BackwardRow = Row<Backward>;

/// Every row, in the order of the README's matrix. The same in every build.
std::span<const ForwardRow> forward_rows();
std::span<const BackwardRow> backward_rows();

/// The order in which Auto tries the rows: what measured fastest first. Indices into the rows.
std::span<const int> forward_auto_order();
std::span<const int> backward_auto_order();

/// The same, by the pass.
template <class P>
std::span<const Row<P>> rows() {
  if constexpr (P::kPass == Pass::forward) {
    return forward_rows();
  } else {
    return backward_rows();
  }
}
template <class P>
std::span<const int> auto_order() {
  return P::kPass == Pass::forward ? forward_auto_order() : backward_auto_order();
}

}  // namespace fa::internal
