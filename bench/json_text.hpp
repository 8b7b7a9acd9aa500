/// Pieces of JSON text.
#pragma once

#include <string>

#include "bench/run_facts.hpp"

namespace fa::bench {

/// With its quotation marks; control characters become blanks.
std::string quoted(const std::string& text);

/// Six digits; null where it is no finite number.
std::string number(double x);

/// An object of texts, a line each, closed at two blanks of indentation.
std::string json_object(const Facts& facts);

}  // namespace fa::bench
