/// Which row runs: a pure function of the problem, the side, the device and the table.
#pragma once

#include <string>
#include <vector>

#include "src/kernel_table.hpp"

namespace fa::internal {

template <class P>
struct Rejection {
  const Row<P>* row;
  std::string reason;
};

template <class P>
struct Choice {
  const Row<P>* row = nullptr;           // null: nothing takes the problem
  const Row<P>* stood_in_for = nullptr;  // the row that was asked for, where another serves
  std::vector<Rejection<P>> rejected;    // in the order tried
  std::string absence;                   // the table has no row to try: why; else empty
};

/// What a choice depends on besides the problem.
struct Situation {
  bool on_device;
  const DeviceProperties& device;
  int threads;  // of a host row
};

/// The row named by `version`, its stand-in, or for Auto the first in the table's order that takes the
/// problem. Throws InvalidArgument for a number that is no version's; where the table has no such row,
/// `absence` says so. P is Forward or Backward.
template <class P>
Choice<P> choose(const typename P::Problem& problem, Version version, const Situation& situation);

}  // namespace fa::internal
