/// What is right, in double precision, and how far a plain computation of the same element type is from it.
/// Written apart from the library: nothing here shares code with src/cpu or kernels/.
#pragma once

#include <vector>

#include "tests/support/problem.hpp"

namespace fa::test {

/// q, k, v of a problem as the kernel sees them, already rounded to its dtype, contiguous, in logical order.
struct Inputs {
  std::vector<float> q;  // [B, H, M, D]
  std::vector<float> k;  // [B, Hk, N, D]
  std::vector<float> v;  // [B, Hk, N, Dv]
};

/// The problem's own random data, from its seed. Broadcast layouts repeat one batch and head.
Inputs make_inputs(const Problem& problem);

/// Rounds to the dtype and back: nearest, ties to even. Independent of fa::half's conversions.
float round_to(Dtype dtype, float x);

template <class Real>
struct Outputs {
  std::vector<Real> out;  // [B, H, M, Dv]
  std::vector<Real> lse;  // [B, H, M]
};

/// Three passes in fp64: scores, softmax, product. Threaded. Empty rows: O = 0, LSE = -infinity.
Outputs<double> oracle_forward(const Problem& problem, const Inputs& inputs);

/// The yardstick: S in fp32 from the rounded inputs, P = exp(S - max) unnormalised and rounded to T, l from
/// the unrounded P, PV in fp32, O = PV / l rounded to T.
Outputs<float> yardstick_forward(const Problem& problem, const Inputs& inputs);

}  // namespace fa::test
