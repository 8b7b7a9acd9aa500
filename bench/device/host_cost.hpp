/// What fa_forward costs the host, beside bare launches.
#pragma once

#include "bench/device/device_problem.hpp"
#include "bench/side.hpp"

namespace fa::bench {

/// Host seconds of fa_forward calls (workspace and stream supplied, nothing allocated) on a small problem,
/// and of as many launches of an empty kernel with the parameter bytes as the call makes kernel launches: it
/// is captured in a graph and its kernels are counted. At most 200 calls are made between synchronisations,
/// so that the host never waits for room in the queue. Throws std::runtime_error where the library does not
/// take the problem.
HostCost device_host_cost(Version version, Dtype dtype, const DeviceStream& stream);

}  // namespace fa::bench
