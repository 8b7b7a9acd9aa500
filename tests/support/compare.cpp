#include "tests/support/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

namespace fa::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string format(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

/// Both NaN, the same infinity, or both finite.
bool same_kind(double got, double want) {
  if (std::isfinite(want)) return std::isfinite(got);
  return std::isnan(want) ? std::isnan(got) : got == want;
}

double unit_roundoff(Dtype dtype) {
  return dtype == Dtype::float32 ? 0x1p-24 : dtype == Dtype::float16 ? 0x1p-11 : 0x1p-8;
}

/// Sums of squares over the elements where `want` is finite.
struct Norms {
  double error, want;
};
template <class Got>
Norms norms(const Got* got, const double* want, std::int64_t count) {
  Norms sums{0, 0};
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(want[i])) continue;
    const double error = static_cast<double>(got[i]) - want[i];
    sums.error += error * error;
    sums.want += want[i] * want[i];
  }
  return {std::sqrt(sums.error), std::sqrt(sums.want)};
}

double relative(double error, double want) {
  return error == 0 ? 0 : want == 0 ? kInfinity : error / want;
}

std::string at(std::int64_t b, std::int64_t h, std::int64_t s) {
  return std::string("[") + std::to_string(b) + ", " + std::to_string(h) + ", " + std::to_string(s) + "]";
}

/// Infinite where the dtype cannot hold the oracle's number.
std::vector<double> within_range(std::vector<double> values, Dtype dtype) {
  for (double& x : values) {
    if (std::isfinite(x) && !std::isfinite(round_to(dtype, static_cast<float>(x)))) {
      x = std::copysign(kInfinity, x);
    }
  }
  return values;
}

/// One check each; an empty text where it holds.
class Checker {
 public:
  Checker(const Problem& problem, const Reference& reference, const Inputs& inputs, const Outputs<float>& got)
      : p_(problem),
        oracle_(reference.oracle),
        yardstick_(reference.yardstick),
        inputs_(inputs),
        got_(got),
        want_(within_range(reference.oracle.out, problem.out_dtype())),
        score_rounding_(score_rounding(problem, inputs)) {}

  std::string sizes() const {
    if (got_.out.size() != want_.size()) return "out: wrong number of elements";
    if (p_.lse && got_.lse.size() != oracle_.lse.size()) return "LSE: wrong number of elements";
    return "";
  }

  std::string max_abs() const {
    const std::int64_t size[4] = {p_.B, p_.H, p_.M, p_.Dv};
    const ErrorStats stats = error_stats(got_.out, want_, size);
    const ErrorStats plain = error_stats(yardstick_.out, want_, size);
    if (stats.not_finite != 0) {
      return "out: NaN or infinity in the wrong place\n  got: " + to_string(stats);
    }
    double largest_v = 0;
    for (const float x : inputs_.v) {
      if (std::isfinite(x)) largest_v = std::max(largest_v, std::fabs(static_cast<double>(x)));
    }
    // A yardstick that overflowed has nothing to say.
    const double plain_error = std::isfinite(plain.max_abs) ? plain.max_abs : 0;
    const double bound = 2 * plain_error + 1e-5 +
                         unit_roundoff(p_.out_dtype()) * largest_v /
                             std::sqrt(static_cast<double>(std::max<std::int64_t>(p_.N, 1))) +
                         2 * score_rounding_ * largest_v;
    if (stats.max_abs <= bound) return "";
    return "out: max abs error " + format(stats.max_abs) + ", allowed " + format(bound) +
           "\n  got:       " + to_string(stats) + "\n  yardstick: " + to_string(plain);
  }

  std::string relative_l2() const {
    const std::int64_t count = p_.M * p_.Dv, slices = p_.B * p_.H;
    if (count < 1024) return "";
    const auto error_of = [&](const std::vector<float>& out, std::int64_t slice) {
      const Norms sums = norms(out.data() + slice * count, want_.data() + slice * count, count);
      return relative(sums.error, sums.want);
    };
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      const double bound = 1.5 * std::max(error_of(yardstick_.out, slice), 4 * 0x1p-24) + score_rounding_ / 4;
      const double error = error_of(got_.out, slice);
      if (error <= bound) continue;
      const std::int64_t size[4] = {1, 1, p_.M, p_.Dv};
      const std::vector<float> got_slice(got_.out.begin() + slice * count,
                                         got_.out.begin() + (slice + 1) * count);
      const std::vector<double> want_slice(want_.begin() + slice * count,
                                           want_.begin() + (slice + 1) * count);
      return "out: relative L2 error " + format(error) + ", allowed " + format(bound) + " in batch " +
             std::to_string(slice / p_.H) + ", head " + std::to_string(slice % p_.H) +
             "\n  that slice: " + to_string(error_stats(got_slice, want_slice, size));
    }
    return "";
  }

  std::string empty_rows() const {
    for (std::int64_t i = 0; i < p_.M; ++i) {
      const KeyRange keys = visible_keys(p_, i);
      if (keys.first != keys.last) continue;
      for (std::int64_t slice = 0; slice < p_.B * p_.H; ++slice) {
        const float* row = got_.out.data() + (slice * p_.M + i) * p_.Dv;
        const float* wrong = std::find_if(row, row + p_.Dv, [](float x) { return !(x == 0.0f); });
        if (wrong == row + p_.Dv) continue;
        return "out: row " + at(slice / p_.H, slice % p_.H, i) + " sees no key and must be 0, got " +
               format(static_cast<double>(*wrong)) + " at feature " + std::to_string(wrong - row);
      }
    }
    return "";
  }

  std::string lse() const {
    if (!p_.lse) return "";
    for (std::size_t i = 0; i < oracle_.lse.size(); ++i) {
      const double got = static_cast<double>(got_.lse[i]), want = oracle_.lse[i];
      const double bound = 1e-5 + 2e-6 * std::fabs(want) + score_rounding_;
      if (same_kind(got, want) && (!std::isfinite(want) || std::fabs(got - want) <= bound)) continue;
      const auto row = static_cast<std::int64_t>(i);
      return "LSE at " + at(row / p_.M / p_.H, row / p_.M % p_.H, row % p_.M) + ": got " + format(got) +
             ", want " + format(want) + ", allowed error " + format(bound);
    }
    return "";
  }

 private:
  const Problem& p_;
  const Outputs<double>& oracle_;
  const Outputs<float>& yardstick_;
  const Inputs& inputs_;
  const Outputs<float>& got_;
  std::vector<double> want_;  // the oracle's, infinite where the dtype overflows
  double score_rounding_;
};

/// One gradient, as check_backward looks at it.
struct GradientCheck {
  const char* name;
  const std::vector<float>& got;
  const std::vector<double>& oracle;
  const std::vector<float>& yardstick;
  const std::vector<double>& magnitudes;  // of its rows
  std::int64_t size[4];
};

std::string check_gradient(const Problem& p, const GradientCheck& g, double rounding) {
  const std::string name = g.name;
  if (g.got.size() != g.oracle.size()) return name + ": wrong number of elements";
  const std::vector<double> want = within_range(g.oracle, p.gradient_dtype());
  const ErrorStats stats = error_stats(g.got, want, g.size);
  const ErrorStats plain = error_stats(g.yardstick, want, g.size);
  if (stats.not_finite != 0) {
    return name + ": NaN or infinity in the wrong place\n  got: " + to_string(stats);
  }
  double largest = 0, largest_magnitude = 0;
  for (const double x : want) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  }
  for (const double x : g.magnitudes) largest_magnitude = std::max(largest_magnitude, x);
  const double plain_error = std::isfinite(plain.max_abs) ? plain.max_abs : 0;
  const double unit = std::max(unit_roundoff(p.dtype), unit_roundoff(p.gradient_dtype()));
  double bound = 3 * plain_error + 1e-5 + 2 * unit * largest;
  // The bar of fp32, which no yardstick can raise.
  if (p.dtype == Dtype::float32 && p.gradient_dtype() == Dtype::float32) {
    bound = std::min(bound, 1e-5 * std::max(1.0, largest));
  }
  bound += 0x1p-24 * largest_magnitude + 4 * rounding * (largest_magnitude + largest);
  if (stats.max_abs > bound) {
    return name + ": max abs error " + format(stats.max_abs) + ", allowed " + format(bound) +
           "\n  got:       " + to_string(stats) + "\n  yardstick: " + to_string(plain);
  }

  const std::int64_t rows = g.size[2], features = g.size[3], count = rows * features;
  if (count < 1024) return "";
  for (std::int64_t slice = 0; slice < g.size[0] * g.size[1]; ++slice) {
    const Norms got = norms(g.got.data() + slice * count, want.data() + slice * count, count);
    const Norms yardstick = norms(g.yardstick.data() + slice * count, want.data() + slice * count, count);
    double magnitude = 0;
    for (std::int64_t row = slice * rows; row < (slice + 1) * rows; ++row) {
      const double x = g.magnitudes[static_cast<std::size_t>(row)];
      magnitude += static_cast<double>(features) * x * x;
    }
    magnitude = std::sqrt(magnitude);
    const double least = std::max(4 * 0x1p-24, unit / 2) * got.want;
    const double allowed =
        3 * std::max(yardstick.error, least) + 0x1p-24 * magnitude + 4 * rounding * (magnitude + got.want);
    if (got.error <= allowed) continue;
    return name + ": L2 error " + format(got.error) + ", allowed " + format(allowed) + ", of a norm of " +
           format(got.want) + " in batch " + std::to_string(slice / g.size[1]) + ", head " +
           std::to_string(slice % g.size[1]);
  }
  return "";
}

/// Rows of a gradient that must be exactly 0: `empty` tells of row s of every head.
template <class Empty>
std::string check_zero_rows(const GradientCheck& g, const Empty& empty, const char* why) {
  const std::int64_t rows = g.size[2], features = g.size[3];
  for (std::int64_t s = 0; s < rows; ++s) {
    if (!empty(s)) continue;
    for (std::int64_t slice = 0; slice < g.size[0] * g.size[1]; ++slice) {
      const float* row = g.got.data() + (slice * rows + s) * features;
      const float* wrong = std::find_if(row, row + features, [](float x) { return !(x == 0.0f); });
      if (wrong == row + features) continue;
      return std::string(g.name) + ": row " + at(slice / g.size[1], slice % g.size[1], s) + why +
             " and must be 0, got " + format(static_cast<double>(*wrong)) + " at feature " +
             std::to_string(wrong - row);
    }
  }
  return "";
}

}  // namespace

double score_rounding(const Problem& problem, const Inputs& inputs) {
  const auto longest_row = [D = static_cast<std::size_t>(problem.D)](const std::vector<float>& rows) {
    double longest = 0;
    for (std::size_t row = 0; row + D <= rows.size(); row += D) {
      double squares = 0;
      for (std::size_t d = 0; d < D; ++d)
        squares += static_cast<double>(rows[row + d]) * static_cast<double>(rows[row + d]);
      if (std::isfinite(squares)) longest = std::max(longest, std::sqrt(squares));
    }
    return longest;
  };
  const double scale = problem.scale ? std::fabs(static_cast<double>(*problem.scale))
                                     : 1 / std::sqrt(static_cast<double>(problem.D));
  const double kappa = scale * longest_row(inputs.q) * longest_row(inputs.k);
  return kappa <= 64 ? 0 : 0x1p-24 * kappa;
}

ErrorStats error_stats(const std::vector<float>& got, const std::vector<double>& want,
                       const std::int64_t size[4]) {
  const std::int64_t count = size[0] * size[1] * size[2] * size[3];
  if (got.size() != want.size() || static_cast<std::int64_t>(got.size()) != count) {
    throw std::invalid_argument("error_stats: got, want and size disagree");
  }
  ErrorStats stats;
  double sum = 0, squares = 0, want_squares = 0;
  std::int64_t worst = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double g = static_cast<double>(got[static_cast<std::size_t>(i)]);
    const double w = want[static_cast<std::size_t>(i)];
    if (!same_kind(g, w)) {
      if (stats.not_finite++ == 0) worst = i;
      continue;
    }
    if (!std::isfinite(w)) continue;
    const double error = std::fabs(g - w);
    if (stats.not_finite == 0 && error > stats.max_abs) {
      stats.max_abs = error;
      worst = i;
    }
    sum += error;
    squares += error * error;
    want_squares += w * w;
  }
  if (stats.not_finite != 0) {
    stats.max_abs = stats.mean_abs = stats.rmse = stats.relative_l2 = kInfinity;
  } else if (count != 0) {
    stats.mean_abs = sum / static_cast<double>(count);
    stats.rmse = std::sqrt(squares / static_cast<double>(count));
    stats.relative_l2 = relative(std::sqrt(squares), std::sqrt(want_squares));
  }
  if (count != 0) {
    stats.worst_got = static_cast<double>(got[static_cast<std::size_t>(worst)]);
    stats.worst_want = want[static_cast<std::size_t>(worst)];
    for (int axis = 3; axis >= 0; --axis) {
      stats.worst[axis] = worst % size[axis];
      worst /= size[axis];
    }
  }
  return stats;
}

std::string to_string(const ErrorStats& stats) {
  std::string text = "max abs " + format(stats.max_abs) + " at [" + std::to_string(stats.worst[0]) + ", " +
                     std::to_string(stats.worst[1]) + ", " + std::to_string(stats.worst[2]) + ", " +
                     std::to_string(stats.worst[3]) + "] (got " + format(stats.worst_got) + ", want " +
                     format(stats.worst_want) + "), mean abs " + format(stats.mean_abs) + ", RMSE " +
                     format(stats.rmse) + ", relative L2 " + format(stats.relative_l2);
  if (stats.not_finite != 0) text += ", NaN or infinite: " + std::to_string(stats.not_finite);
  return text;
}

Reference make_reference(const Problem& problem, const Inputs& inputs) {
  return {oracle_forward(problem, inputs), yardstick_forward(problem, inputs)};
}

std::string check_forward(const Problem& problem, const Reference& reference, const Inputs& inputs,
                          const Outputs<float>& got) {
  const Checker checker(problem, reference, inputs, got);
  std::string faults = checker.sizes();
  if (faults.empty()) {
    for (const std::string& fault :
         {checker.max_abs(), checker.relative_l2(), checker.empty_rows(), checker.lse()}) {
      if (!fault.empty()) faults += (faults.empty() ? "" : "\n") + fault;
    }
  }
  return faults.empty() ? "" : to_string(problem) + "\n" + faults;
}

std::string check_forward(const Problem& problem, const Inputs& inputs, const Outputs<float>& got) {
  return check_forward(problem, make_reference(problem, inputs), inputs, got);
}

BackwardReference make_backward_reference(const Problem& problem, const BackwardInputs& inputs) {
  BackwardReference reference;
  reference.oracle = oracle_backward(problem, inputs, &reference.magnitudes);
  reference.yardstick = yardstick_backward(problem, inputs);
  return reference;
}

std::string check_backward(const Problem& problem, const BackwardReference& reference,
                           const BackwardInputs& inputs, const Gradients<float>& got) {
  const Problem& p = problem;
  const Gradients<double>& oracle = reference.oracle;
  const Gradients<float>& yardstick = reference.yardstick;
  const Magnitudes& magnitudes = reference.magnitudes;
  const GradientCheck dq{"dq", got.dq, oracle.dq, yardstick.dq, magnitudes.dq, {p.B, p.H, p.M, p.D}};
  const GradientCheck dk{"dk", got.dk, oracle.dk, yardstick.dk, magnitudes.dk, {p.B, p.Hk, p.N, p.D}};
  const GradientCheck dv{"dv", got.dv, oracle.dv, yardstick.dv, magnitudes.dv, {p.B, p.Hk, p.N, p.Dv}};

  std::vector<bool> seen(static_cast<std::size_t>(p.N), false);
  std::vector<bool> sees(static_cast<std::size_t>(p.M), false);
  for (std::int64_t i = 0; i < p.M; ++i) {
    const KeyRange keys = visible_keys(p, i);
    sees[static_cast<std::size_t>(i)] = keys.first != keys.last;
    for (std::int64_t j = keys.first; j < keys.last; ++j) seen[static_cast<std::size_t>(j)] = true;
  }
  const auto is_empty = [&](std::int64_t i) { return !sees[static_cast<std::size_t>(i)]; };
  const auto is_unseen = [&](std::int64_t j) { return !seen[static_cast<std::size_t>(j)]; };

  const double rounding = score_rounding(p, inputs.in);
  std::string faults;
  const auto note = [&faults](const std::string& fault) {
    if (!fault.empty()) faults += (faults.empty() ? "" : "\n") + fault;
    return fault.empty();
  };
  if (note(check_gradient(p, dq, rounding))) note(check_zero_rows(dq, is_empty, " sees no key"));
  if (note(check_gradient(p, dk, rounding))) note(check_zero_rows(dk, is_unseen, " is seen by no query"));
  if (note(check_gradient(p, dv, rounding))) note(check_zero_rows(dv, is_unseen, " is seen by no query"));
  return faults.empty() ? "" : to_string(p) + "\n" + faults;
}

std::string check_backward(const Problem& problem, const BackwardInputs& inputs,
                           const Gradients<float>& got) {
  return check_backward(problem, make_backward_reference(problem, inputs), inputs, got);
}

}  // namespace fa::test
