/// Texts of several lines, to stand in a table.
#pragma once

#include <string>

namespace fa::bench {

/// Lines are joined by "; ", or by a space behind a colon; empty ones are left out. What is longer than 400
/// characters (cuDNN's reasons may fill pages) ends there, in " ...".
std::string one_line(const std::string& text);

}  // namespace fa::bench
