/// The rows of the kernel table, as tests take them.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "tests/support/memory.hpp"

namespace fa::test {

/// A row of the kernel table.
struct Row {
  Version version;
  Dtype dtype;
  Side side;
  bool built;
  std::string kernel;
};

/// Every row of one pass, in the table's order.
std::vector<Row> rows_of(Pass pass);

/// "CPU_fp32": the row's part of a test's name.
std::string row_name(const Row& row);
std::ostream& operator<<(std::ostream& os, const Row& row);

}  // namespace fa::test
