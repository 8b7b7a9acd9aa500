/// The one validation. What passes it is a problem that every part below may rely on.
#pragma once

#include "kernels/params.hpp"
#include "src/overlap.hpp"
#include "src/placement.hpp"

namespace fa::internal {

/// Throws InvalidArgument for a size that Args (fa_forward_args, fa_backward_args) never had; larger ones may
/// be a newer header's.
template <class Args>
void require_known_size(size_t size);

/// Every field at its default.
template <class Args>
Args default_args();

/// The struct as this library knows it: missing trailing fields at their defaults. Throws InvalidArgument for
/// null or a size the struct never had, Unsupported for a longer one that uses fields unknown here.
fa_forward_args complete(const fa_forward_args* args);
fa_backward_args complete(const fa_backward_args* args);

/// Checks every rule that needs no device and returns the problem. Throws InvalidArgument.
ForwardProblem validate(const fa_forward_args& args);
BackwardProblem validate(const fa_backward_args& args);

/// Where a call runs.
struct Side {
  bool on_device = false;
  int device = -1;           // CUDA ordinal
  const char* witness = "";  // the tensor that decided, for messages
  MemoryFacts facts;         // its memory
};

/// Looks at the pointers. Throws InvalidArgument where they are not all on one side, naming two that differ.
/// Pinned memory counts as the device's, unless fa::CPU is named.
Side find_side(const fa_forward_args& args, Version version);
Side find_side(const fa_backward_args& args, Version version);

}  // namespace fa::internal
