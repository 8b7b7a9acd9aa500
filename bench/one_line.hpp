/// Texts of several lines, to stand in a table.
#pragma once

#include <string>

namespace fa::bench {

/// Line ends become ";", those at the end nothing. What is longer than 400 characters (cuDNN's reasons may
/// fill pages) ends there, in " ...".
std::string one_line(std::string text);

}  // namespace fa::bench
