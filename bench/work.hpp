/// The memory that a problem must move.
#pragma once

#include "tests/support/problem.hpp"

namespace fa::bench {

/// Bytes that must cross memory once: q and out, lse, and those rows of k and v that any query sees; of
/// backward besides these dout and the gradients.
double least_bytes(const test::Problem& problem);

}  // namespace fa::bench
