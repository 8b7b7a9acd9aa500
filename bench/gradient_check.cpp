#include "bench/gradient_check.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace fa::bench {

namespace {

using test::KeyRange;
using test::Problem;

double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// A sum of scaled rows, with the root of the sum of squares of its terms.
class Sum {
 public:
  explicit Sum(std::int64_t features) : value_(static_cast<std::size_t>(features), 0.0) {}

  /// `size`: that of the factor before anything cancelled in it.
  void add(double factor, double size, const float* row) {
    double squares = 0;
    for (std::size_t d = 0; d < value_.size(); ++d) {
      const double x = static_cast<double>(row[d]);
      value_[d] += factor * x;
      squares += x * x;
    }
    squares_ += size * size * squares;
  }

  std::string compare(const std::vector<float>& got, double scale, double unit) const {
    double error = 0, norm = 0;
    for (std::size_t d = 0; d < value_.size(); ++d) {
      const double want = scale * value_[d];
      error += (static_cast<double>(got[d]) - want) * (static_cast<double>(got[d]) - want);
      norm += want * want;
    }
    const double allowed =
        64 * unit * std::max(std::sqrt(norm), std::fabs(scale) * std::sqrt(squares_)) + 1e-6;
    if (std::sqrt(error) <= allowed) return "";  // written so that a NaN fails
    return "off by " + std::to_string(std::sqrt(error)) + " of " + std::to_string(std::sqrt(norm)) +
           ", allowed " + std::to_string(allowed);
  }

 private:
  std::vector<double> value_;
  double squares_ = 0;
};

std::string check_query(const Problem& p, const GradientReader& read, double unit, std::int64_t b,
                        std::int64_t h, std::int64_t i) {
  const KeyRange keys = visible_keys(p, i);
  const std::int64_t kv = h / (p.H / p.Hk), count = keys.last - keys.first;
  const double scale = static_cast<double>(scale_of(p));
  Sum dq(p.D);
  if (count > 0) {
    const std::vector<float> q = read.in.q(b, h, i, i + 1), dout = read.dout(b, h, i, i + 1);
    const std::vector<float> k = read.in.k(b, kv, keys.first, keys.last),
                             v = read.in.v(b, kv, keys.first, keys.last);
    std::vector<double> weight(static_cast<std::size_t>(count)), gradient(weight.size());
    double max = -HUGE_VAL, sum = 0, delta = 0, largest = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      weight[static_cast<std::size_t>(j)] = scale * dot(q.data(), k.data() + j * p.D, p.D);
      gradient[static_cast<std::size_t>(j)] = dot(dout.data(), v.data() + j * p.Dv, p.Dv);
      max = std::max(max, weight[static_cast<std::size_t>(j)]);
    }
    for (double& w : weight) sum += w = std::exp(w - max);
    for (std::size_t j = 0; j < weight.size(); ++j) {
      weight[j] /= sum;
      delta += weight[j] * gradient[j];
      largest = std::max(largest, std::fabs(gradient[j]));
    }
    for (std::int64_t j = 0; j < count; ++j) {
      const double w = weight[static_cast<std::size_t>(j)];
      dq.add(w * (gradient[static_cast<std::size_t>(j)] - delta), w * largest, k.data() + j * p.D);
    }
  }
  const std::string fault = dq.compare(read.dq(b, h, i, i + 1), scale, unit);
  return fault.empty() ? ""
                       : "dq, batch " + std::to_string(b) + ", head " + std::to_string(h) + ", row " +
                             std::to_string(i) + ": " + fault;
}

std::string check_key(const Problem& p, const GradientReader& read, double unit, std::int64_t b,
                      std::int64_t kv, std::int64_t j) {
  const std::int64_t group = p.H / p.Hk;
  const double scale = static_cast<double>(scale_of(p));
  const std::vector<float> k = read.in.k(b, kv, j, j + 1), v = read.in.v(b, kv, j, j + 1);
  Sum dk(p.D), dv(p.Dv);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    const std::vector<float> q = read.in.q(b, h, 0, p.M), out = read.out(b, h, 0, p.M),
                             dout = read.dout(b, h, 0, p.M), lse = read.lse(b, h, 0, p.M);
    for (std::int64_t i = 0; i < p.M; ++i) {
      const KeyRange keys = visible_keys(p, i);
      if (j < keys.first || j >= keys.last) continue;
      const float *const q_row = q.data() + i * p.D, *const dout_row = dout.data() + i * p.Dv;
      const double score = scale * dot(q_row, k.data(), p.D);
      const double w = std::exp(score - static_cast<double>(lse[static_cast<std::size_t>(i)]));
      const double gradient = dot(dout_row, v.data(), p.Dv),
                   delta = dot(dout_row, out.data() + i * p.Dv, p.Dv);
      dv.add(w, w, dout_row);
      dk.add(w * (gradient - delta), w * (std::fabs(gradient) + std::fabs(delta)), q_row);
    }
  }
  const std::string of_k = dk.compare(read.dk(b, kv, j, j + 1), scale, unit);
  const std::string of_v = dv.compare(read.dv(b, kv, j, j + 1), 1, unit);
  if (of_k.empty() && of_v.empty()) return "";
  return std::string(of_k.empty() ? "dv" : "dk") + ", batch " + std::to_string(b) + ", head " +
         std::to_string(kv) + ", key " + std::to_string(j) + ": " + (of_k.empty() ? of_v : of_k);
}

/// The first index, the last, and others.
std::vector<std::int64_t> sample(std::int64_t count, int wanted, std::mt19937_64& random) {
  std::vector<std::int64_t> all;
  if (count == 0) return all;
  all = {0, count - 1};
  while (static_cast<int>(all.size()) < wanted) {
    all.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count)));
  }
  return all;
}

}  // namespace

std::string check_gradients(const Problem& problem, const GradientReader& read, int rows) {
  const Problem& p = problem;
  const double unit = p.dtype == Dtype::float32 ? 0x1p-24 : p.dtype == Dtype::float16 ? 0x1p-11 : 0x1p-8;
  std::mt19937_64 random(p.seed);
  for (const std::int64_t at : sample(p.B * p.H * p.M, rows, random)) {
    const std::string fault = check_query(p, read, unit, at / (p.H * p.M), at / p.M % p.H, at % p.M);
    if (!fault.empty()) return test::to_string(p) + "\n" + fault;
  }
  for (const std::int64_t at : sample(p.B * p.Hk * p.N, rows, random)) {
    const std::string fault = check_key(p, read, unit, at / (p.Hk * p.N), at / p.N % p.Hk, at % p.N);
    if (!fault.empty()) return test::to_string(p) + "\n" + fault;
  }
  return "";
}

}  // namespace fa::bench
