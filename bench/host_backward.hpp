/// Backward, or forward and backward, on the host.
#pragma once

#include <memory>

#include "bench/side.hpp"

namespace fa::bench {

/// Measures problem.passes, backward or both. out and lse come from the library's own forward pass.
std::unique_ptr<Fixture> host_backward_fixture(const test::Problem& problem);

}  // namespace fa::bench
