/// What the backward suites share: the backward rows of the kernel table as test parameters, and one run of a
/// problem by one row that accepts the row's own stated rejection and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <optional>
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

/// Every backward row, in the table's order.
std::vector<Row> backward_rows();

/// What explain says about the problem by the row; does not run it.
Explanation explain_problem(const Problem& problem, const Row& row);

/// The row's own code takes the problem: no rejection, and no stand-in.
bool takes(Problem problem, const Row& row);

/// run_backward by the row with the row's own dtype in the problem. Nothing where the row rejects the problem
/// and explain says the same; a rejection that explain does not state, any other exception, or damage to a
/// guard band is a failure, with the problem's line. The CPU backend takes every problem: its rejections
/// fail.
std::optional<Gradients<float>> run_row(const Problem& problem, const BackwardInputs& inputs, const Row& row);

/// run_row with the problem's own data, compared by check_backward. True where it ran.
bool check_row(Problem problem, const Row& row);
bool check_row(Problem problem, const BackwardInputs& inputs, const Row& row);

/// All elements' bits: unequal wherever two results differ in any way.
std::vector<std::uint32_t> bits_of(const Gradients<float>& gradients);

/// Strided arrays of one call, for tests that lay their arguments out by hand. Each starts compact.
struct Arrays {
  Array q, k, v, out, dout, dq, dk, dv;
  Memory lse;

  /// The problem's sizes, the row's side and type, filled from `inputs`; gradients hold 0xFF.
  Arrays(const Problem& problem, const BackwardInputs& inputs, Side side);

  fa_backward_args args(const Problem& problem) const;
};

/// The status of fa_backward by the row, after waiting for the side's work.
fa_status run_args(const fa_backward_args& args, const Row& row);

}  // namespace fa::test
