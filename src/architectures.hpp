/// Which devices a room's code runs on.
#pragma once

#include <string_view>

namespace fa::internal {

/// Whether code built for `architectures`, as CMake writes them with commas between ("80-real,90,90a-real"),
/// runs on a device of compute capability major.minor: machine code on devices of its major version that are
/// not older, PTX (a number alone, or -virtual) on every device that is not older, family code (90a) on its
/// own alone.
bool runs_on(std::string_view architectures, int major, int minor);

}  // namespace fa::internal
