#include "bench/json_text.hpp"

#include <cmath>
#include <cstdio>

namespace fa::bench {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      result += ' ';
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string number(double x) {
  if (!std::isfinite(x)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}

std::string json_object(const Facts& facts) {
  std::string text = "{";
  for (const auto& [name, value] : facts) {
    text += std::string(text.size() > 1 ? "," : "") + "\n    " + quoted(name) + ": " + quoted(value);
  }
  return text + "\n  }";
}

}  // namespace fa::bench
