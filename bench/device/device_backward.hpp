/// Backward, or forward and backward, on a device.
#pragma once

#include <memory>

#include "bench/device/cuda.hpp"
#include "bench/side.hpp"

namespace fa::bench {

/// Measures problem.passes, backward or both. out and lse come from the library's own forward pass.
std::unique_ptr<Fixture> device_backward_fixture(const test::Problem& problem, const DeviceStream& stream);

}  // namespace fa::bench
