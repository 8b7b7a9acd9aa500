#include "bench/one_line.hpp"

#include <sstream>

namespace fa::bench {

std::string one_line(const std::string& text) {
  constexpr std::size_t kLongest = 400;
  std::string line;
  std::istringstream lines(text);
  for (std::string part; std::getline(lines, part);) {
    part.erase(0, part.find_first_not_of(' '));
    if (part.empty()) continue;
    if (!line.empty()) line += line.back() == ':' ? " " : "; ";
    line += part;
  }
  if (line.size() > kLongest) line = line.substr(0, kLongest) + " ...";
  return line;
}

}  // namespace fa::bench
