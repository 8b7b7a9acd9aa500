/// Are gradients right? A sample of their rows, each held against fp64, for problems too long for the oracle.
#pragma once

#include <string>

#include "bench/row_check.hpp"

namespace fa::bench {

/// What the backward pass read and wrote. HeadReader as in row_check.hpp; lse has one feature a row.
struct GradientReader {
  InputReader in;
  HeadReader out, dout, lse;  // of query heads
  HeadReader dq;              // of query heads
  HeadReader dk, dv;          // of key heads
};

/// Compares `rows` rows of dQ, and as many of dK and dV (the first, the last, and others drawn from the
/// problem's seed), with sums in fp64. dQ is computed from q, k, v and dout alone; dK and dV take lse and out
/// as forward wrote them. Off by at most 64 unit roundoffs of the element type, relative to the root of the
/// sum of squares of the terms. Empty: all are right; else which is not, and why.
std::string check_gradients(const test::Problem& problem, const GradientReader& read, int rows = 8);

}  // namespace fa::bench
