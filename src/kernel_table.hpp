/// The kernel table: the one list of what exists. Choice, explain, the README's matrix, tests and bench
/// all read it. Adding a kernel is one room and one row.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/params.hpp"

namespace fa::internal {

/// A row of the forward pass.
struct ForwardRow {
  Version version;
  Dtype dtype;
  const char* name;           // "v2_flash2"
  const char* limits;         // one line, for people: what it takes
  bool on_device;             // runs on a CUDA device; else on the host
  bool built;                 // this build holds its code
  const char* architectures;  // of a device row: what its code was built for, "80-real,90"
  const char* stand_in;       // name of the row that serves what this one rejects, or null

  RejectForward* reject;
  ForwardWorkspace* workspace;
  PrepareForward* prepare;  // null: nothing to do
  LaunchForward* launch;
};

/// Every row, in the order of the README's matrix. The same in every build.
std::span<const ForwardRow> forward_rows();

/// The order in which Auto tries the rows: what measured fastest first. Indices into forward_rows().
std::span<const int> forward_auto_order();

}  // namespace fa::internal
