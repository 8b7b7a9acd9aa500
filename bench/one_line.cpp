#include "bench/one_line.hpp"

#include <algorithm>

namespace fa::bench {

std::string one_line(std::string text) {
  constexpr std::size_t kLongest = 400;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  if (text.size() > kLongest) text = text.substr(0, kLongest) + " ...";
  return text;
}

}  // namespace fa::bench
