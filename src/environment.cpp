#include "src/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include <flashattn/error.hpp>

namespace fa::internal {

std::optional<int> environment_number(const char* name, int most) {
  const char* variable = std::getenv(name);
  if (variable == nullptr || *variable == '\0') return std::nullopt;
  const std::string_view text = variable;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1 || number > most) {
    throw InvalidArgument(std::string(name) + " = '" + variable + "' must be a number from 1 to " +
                          std::to_string(most));
  }
  return number;
}

}  // namespace fa::internal
