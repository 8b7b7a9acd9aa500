#include "src/architectures.hpp"

#include <charconv>

namespace fa::internal {
namespace {

// One element of the list.
bool element_runs_on(std::string_view element, int major, int minor) {
  int number = 0;
  const auto [end, error] = std::from_chars(element.data(), element.data() + element.size(), number);
  if (error != std::errc{}) return false;
  const std::string_view rest(end, static_cast<size_t>(element.data() + element.size() - end));
  const int built_major = number / 10, built_minor = number % 10;
  if (rest.starts_with("a") || rest.starts_with("f")) return major == built_major && minor == built_minor;
  if (rest == "-real") return major == built_major && minor >= built_minor;
  return major > built_major || (major == built_major && minor >= built_minor);
}

}  // namespace

bool runs_on(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const size_t comma = architectures.find(',');
    if (element_runs_on(architectures.substr(0, comma), major, minor)) return true;
    if (comma == std::string_view::npos) break;
    architectures.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace fa::internal
