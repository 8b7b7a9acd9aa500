#include "bench/row_check.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/compare.hpp"

namespace fa::bench {

namespace {

using test::Inputs;
using test::KeyRange;
using test::Problem;

struct Row {
  std::int64_t b, h, i;
};

Row row_at(const Problem& p, std::int64_t index) {
  return {index / (p.H * p.M), index / p.M % p.H, index % p.M};
}

std::string check_empty(const Problem& p, const OutputRow& got) {
  for (const float value : got.out) {
    if (value != 0) return "a row that sees no key is not 0 but " + std::to_string(value);
  }
  if (p.lse && !(std::isinf(got.lse) && got.lse < 0)) {
    return "a row that sees no key has LSE " + std::to_string(got.lse) + ", not -infinity";
  }
  return "";
}

std::string check_loosely(const Problem& one, const Inputs& inputs, const OutputRow& got) {
  const double unit = one.dtype == Dtype::float16 ? 0x1p-11 : 0x1p-8;
  const test::Outputs<double> want = test::oracle_forward(one, inputs);
  const std::int64_t size[4] = {1, 1, 1, one.Dv};
  const test::ErrorStats stats = test::error_stats(got.out, want.out, size);
  // Written so that a NaN fails.
  if (!(stats.relative_l2 <= 8 * unit)) return test::to_string(one) + "\n" + test::to_string(stats);
  const double lse = static_cast<double>(got.lse);
  if (one.lse && !(std::abs(lse - want.lse[0]) <= 8 * unit * std::max(1.0, std::abs(want.lse[0])))) {
    return "LSE " + std::to_string(lse) + ", not " + std::to_string(want.lse[0]);
  }
  return "";
}

std::string check_row(const Problem& p, const InputReader& inputs, const Row& row, const OutputRow& got,
                      Rule rule) {
  const KeyRange keys = visible_keys(p, row.i);
  if (keys.first == keys.last) return check_empty(p, got);

  Problem one = p;
  one.B = one.H = one.Hk = one.M = 1;
  one.N = keys.last - keys.first;
  one.mask = Mask::full();
  one.layout = test::Layout::bhsd;
  const std::int64_t key_head = row.h / (p.H / p.Hk);
  const Inputs part = {inputs.q(row.b, row.h, row.i, row.i + 1),
                       inputs.k(row.b, key_head, keys.first, keys.last),
                       inputs.v(row.b, key_head, keys.first, keys.last)};
  if (rule == Rule::sixteen_bit_baseline) return check_loosely(one, part, got);
  return test::check_forward(one, part, {got.out, {got.lse}});
}

}  // namespace

InputReader input_reader(const Problem& p, const Inputs& inputs) {
  const auto reader = [](const std::vector<float>& values, std::int64_t heads, std::int64_t S,
                         std::int64_t D) -> HeadReader {
    return [&values, heads, S, D](std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t last) {
      const auto begin = values.begin() + ((b * heads + head) * S + first) * D;
      return std::vector<float>(begin, begin + (last - first) * D);
    };
  };
  return {reader(inputs.q, p.H, p.M, p.D), reader(inputs.k, p.Hk, p.N, p.D),
          reader(inputs.v, p.Hk, p.N, p.Dv)};
}

std::string check_rows(const Problem& p, const InputReader& inputs, const RowReader& read, Rule rule,
                       int rows) {
  const std::int64_t all = p.B * p.H * p.M;
  if (all == 0) return "";
  std::mt19937_64 random(p.seed);
  std::uniform_int_distribution<std::int64_t> any(0, all - 1);
  for (int n = 0; n < rows; ++n) {
    const Row row = row_at(p, n == 0 ? 0 : n == 1 ? all - 1 : any(random));
    const std::string wrong = check_row(p, inputs, row, read(row.b, row.h, row.i), rule);
    if (!wrong.empty()) {
      return "wrong at [b " + std::to_string(row.b) + ", h " + std::to_string(row.h) + ", row " +
             std::to_string(row.i) + "]: " + wrong;
    }
  }
  return "";
}

}  // namespace fa::bench
