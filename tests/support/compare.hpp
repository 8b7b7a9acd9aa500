/// Error measures, and the rule that decides.
#pragma once

#include <string>
#include <vector>

#include "tests/support/oracle.hpp"

namespace fa::test {

struct ErrorStats {
  double max_abs = 0, mean_abs = 0, rmse = 0, relative_l2 = 0;
  std::int64_t worst[4] = {0, 0, 0, 0};  // indices [b, h, s, d] of max_abs
  double worst_got = 0, worst_want = 0;
  std::int64_t not_finite = 0;  // elements whose NaN or infinity the other side does not have
};

/// got, want: [n0, n1, n2, n3]. Elements where both are the same infinity, or both NaN, count as equal. Where
/// not_finite is not 0 all four measures are infinite and worst is the first such element: a NaN in got never
/// looks small.
ErrorStats error_stats(const std::vector<float>& got, const std::vector<double>& want,
                       const std::int64_t size[4]);

/// "max abs 1.2e-07 at [0, 3, 17, 5] (got ..., want ...), mean abs ..., RMSE ..., relative L2 ..."
std::string to_string(const ErrorStats& stats);

/// What a result is held against. Computed once, it serves every kernel that runs the problem.
struct Reference {
  Outputs<double> oracle;
  Outputs<float> yardstick;
};
Reference make_reference(const Problem& problem, const Inputs& inputs);

/// How far apart two fp32 computations of the scores may lie: 2^-24 kappa, kappa = |scale| max|q_i| max|k_j|
/// over finite rows (Euclidean norms; by Cauchy-Schwarz no sum of |q_d k_d| is larger). 0 where kappa is at
/// most 64, where the rule below has room for it.
double score_rounding(const Problem& problem, const Inputs& inputs);

/// The rule of the house, u = unit roundoff of the output's dtype: max abs <= 2 x the yardstick's + 1e-5 +
/// u max|V| / sqrt(N); relative L2 <= 1.5 x the yardstick's per (b, h) slice of >= 1,024 elements; LSE within
/// 1e-5 + 2e-6 |LSE|; NaN and infinities where the oracle has them, once rounded to the output's dtype; rows
/// that see no key exactly 0 and -infinity. Empty: it holds; else what does not, with the problem's line.
///
/// Where the yardstick is exact or nearly so (one key, Q = 0), 1.5 times nothing would refuse the last bits
/// of fp32 arithmetic in another order, such as an exponential to base 2. Its relative L2 counts as no less
/// than 4 x 2^-24. TF32 or a 16-bit step where fp32 is due is some hundred times that.
///
/// Where scores are sums of terms far larger than 1, two orders of summation differ by more than all this,
/// and one row near a tie decides a slice. There score_rounding is added: 2 max|V| times it to max abs, a
/// quarter of it to relative L2, and it to the LSE. TF32 rounds scores 8192 times as coarsely.
std::string check_forward(const Problem& problem, const Reference& reference, const Inputs& inputs,
                          const Outputs<float>& got);
std::string check_forward(const Problem& problem, const Inputs& inputs, const Outputs<float>& got);

/// What gradients are held against. Computed once, it serves every kernel that runs the problem.
struct BackwardReference {
  Gradients<double> oracle;
  Gradients<float> yardstick;
  Magnitudes magnitudes;
};
BackwardReference make_backward_reference(const Problem& problem, const BackwardInputs& inputs);

/// The rule of the house for each of dq, dk and dv, u = unit roundoff of the coarser of the types: max abs <=
/// 3 x the yardstick's + 1e-5 + 2u max|oracle|; relative L2 <= 3 x the yardstick's (counted as no less than
/// 4 x 2^-24 and u / 2: of two keys alone it may be right by luck) per (b, h) slice of >= 1,024 elements;
/// with fp32 throughout max abs <= 1e-5 max(1, max|oracle|) too; NaN nowhere; dq of rows that see no key, dk
/// and dv of keys that no row sees exactly 0. Empty: it holds; else what does not, with the problem's line.
///
/// Where terms cancel (one key: dP - Delta is 0) the yardstick may be exact and another order of the same
/// sums not: 2^-24 times the magnitudes is allowed besides, in both measures. And where scores are sums of
/// large terms, 4 x score_rounding times the magnitudes and the oracle's own size, since an error of LSE is
/// common to a row.
std::string check_backward(const Problem& problem, const BackwardReference& reference,
                           const BackwardInputs& inputs, const Gradients<float>& got);
std::string check_backward(const Problem& problem, const BackwardInputs& inputs, const Gradients<float>& got);

}  // namespace fa::test
