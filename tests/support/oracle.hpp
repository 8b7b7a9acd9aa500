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

// ---- backward --------------------------------------------------------------------------------------

/// What the backward pass reads, contiguous, in logical order. out is rounded to the problem's dtype, lse to
/// fp32, both from the fp64 forward oracle: no kernel has a part in them.
struct BackwardInputs {
  Inputs in;
  std::vector<float> out;   // [B, H, M, Dv]
  std::vector<float> dout;  // [B, H, M, Dv]
  std::vector<float> lse;   // [B, H, M]
};

/// The problem's own data. Problem::dout_broadcast repeats one row of dout.
BackwardInputs make_backward_inputs(const Problem& problem);
/// out and lse that belong to `in`, with the problem's own dout.
BackwardInputs make_backward_inputs(const Problem& problem, const Inputs& in);

template <class Real>
struct Gradients {
  std::vector<Real> dq;  // [B, H, M, D]
  std::vector<Real> dk;  // [B, Hk, N, D]
  std::vector<Real> dv;  // [B, Hk, N, Dv]
};

/// For each row of a gradient, the root of the sum of squares of its terms before they cancel: what rounding
/// each of them on its own makes of the sum. The terms are |scale| P_ij |dO_i| |V_j|, by Cauchy-Schwarz no
/// less than those of dP and Delta, times max|K_j| for dQ and max|Q_i| for dK; and P_ij max|dO_i| for dV.
struct Magnitudes {
  std::vector<double> dq;  // [B, H, M]
  std::vector<double> dk;  // [B, Hk, N]
  std::vector<double> dv;  // [B, Hk, N]
};

/// The gradients in fp64, by the formulas of docs/algorithm.md with P and dS written out, and Delta = sum of
/// P_ij dP_ij in place of rowsum(dO o O): it needs neither out nor lse. Threaded. `magnitudes` may be null.
Gradients<double> oracle_backward(const Problem& problem, const BackwardInputs& inputs,
                                  Magnitudes* magnitudes = nullptr);

/// The yardstick: S and dP in fp32, P = exp(S - LSE) and Delta = rowsum(dO o O) from the given lse and out, P
/// rounded to T before dV, dS before dQ and dK, sums in fp32, the gradients rounded to their type.
Gradients<float> yardstick_backward(const Problem& problem, const BackwardInputs& inputs);

}  // namespace fa::test
