/// The kernel table: the one list of what exists. Choice, explain, the README's matrix, tests and bench
/// all read it. Adding a kernel is one room and one row.
#pragma once

#include <cstddef>
#include <span>
#include <string>

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

  // Why the row does not take the problem on the device; empty: it does. In the user's words.
  std::string (*reject)(const ForwardProblem&, const DeviceProperties&);
  // Bytes of workspace.
  size_t (*workspace)(const ForwardProblem&, const DeviceProperties&, int threads);
  // Loads modules and sets attributes; cudaError_t as int. Null: nothing to do.
  int (*prepare)(const ForwardProblem&, const DeviceProperties&);
  // Runs it; cudaError_t as int, 0 on the host.
  int (*launch)(const ForwardParams&, const LaunchContext&, Dtype dtype_in, Dtype dtype_out);
};

/// Every row, in the order of the README's matrix. The same in every build.
std::span<const ForwardRow> forward_rows();

/// The order in which Auto tries the rows: what measured fastest first. Indices into forward_rows().
std::span<const int> forward_auto_order();

}  // namespace fa::internal
