/// What the forward suites share: the rows of the kernel table as test parameters, and one run of a problem
/// by one row that accepts the row's own stated rejection and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "tests/support/array.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/row_suite.hpp"
#include "tests/support/run.hpp"
#include "tests/support/table_rows.hpp"

namespace fa::test {

/// Every forward row, in the table's order.
std::vector<Row> forward_rows();
/// Those of one element type.
std::vector<Row> forward_rows_of(Dtype dtype);
/// Those of a 16-bit element type.
std::vector<Row> forward_rows_of_16_bits();

/// A call in the C interface's words, with the defaults set and the four tensors in place.
fa_forward_args make_args(const Array& q, const Array& k, const Array& v, const Array& out);

/// Waits for the side's work and runs: the status of fa_forward by the row.
fa_status run_args(const fa_forward_args& args, const Row& row);

/// What explain says about the problem by the row; does not run it.
Explanation explain_problem(const Problem& problem, const Row& row);

/// The name of the kernel that runs the call by the row, a stand-in's where one does; empty: none.
std::string kernel_of(const fa_forward_args& args, const Row& row);

/// The row's own code takes the problem: no rejection, and no stand-in.
bool takes(Problem problem, const Row& row);

/// run_forward by the row with the row's own dtype in the problem. Nothing where the row rejects the problem
/// and explain says the same; a rejection that explain does not state, any other exception, or damage to a
/// guard band is a failure, with the problem's line. The CPU backend takes every problem: its rejections
/// fail.
std::optional<Outputs<float>> run_row(const Problem& problem, const Inputs& inputs, const Row& row);

/// run_row with the problem's own data, compared by check_forward. True where it ran.
bool check_row(Problem problem, const Row& row);
bool check_row(Problem problem, const Inputs& inputs, const Row& row);

}  // namespace fa::test
