/// Is a result right? A sample of its rows, each held against the fp64 oracle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/oracle.hpp"

namespace fa::bench {

struct OutputRow {
  std::vector<float> out;  // [Dv]
  float lse;
};

/// Gives out[b, h, row, :] and lse[b, h, row].
using RowReader = std::function<OutputRow(std::int64_t b, std::int64_t h, std::int64_t row)>;

/// Gives rows [first, last) of one head, as fp32.
using HeadReader = std::function<std::vector<float>(std::int64_t b, std::int64_t head, std::int64_t first,
                                                    std::int64_t last)>;
struct InputReader {
  HeadReader q, k, v;
};

/// From host memory, which must outlive the reader.
InputReader input_reader(const test::Problem& problem, const test::Inputs& inputs);

/// What a row may be off by.
enum class Rule {
  house,  // the tests' own rule
  // For a baseline in 16 bits: what it rounds on the way is its own choice. The row's relative L2 error and
  // its LSE stay within eight unit roundoffs.
  sixteen_bit_baseline,
};

/// Compares `rows` rows (the first, the last, and others drawn from the problem's seed). A row is a problem
/// of its own, one query over the keys it sees, so the cost does not grow with M. Empty: all are right; else
/// which is not, and why.
std::string check_rows(const test::Problem& problem, const InputReader& inputs, const RowReader& read,
                       Rule rule, int rows = 16);

}  // namespace fa::bench
