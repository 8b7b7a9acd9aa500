/// Numbers from environment variables.
#pragma once

#include <optional>

namespace fa::internal {

/// The number in variable `name`, decimal digits alone, from 1 to `most`; nothing where it is unset or empty.
/// Throws InvalidArgument for anything else.
std::optional<int> environment_number(const char* name, int most);

}  // namespace fa::internal
