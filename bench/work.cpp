#include "bench/work.hpp"

#include <algorithm>

namespace fa::bench {

double least_bytes(const test::Problem& p) {
  // Rows shift by one key each, so what all rows see together is one range, up to rows that see nothing.
  std::int64_t begin = p.N, end = 0;
  for (const auto& [first, last] : test::even_stretches(p)) {
    for (const std::int64_t row : {first, last}) {
      const test::KeyRange keys = test::visible_keys(p, row);
      if (keys.first == keys.last) continue;
      begin = std::min(begin, keys.first);
      end = std::max(end, keys.last);
    }
  }
  const auto keys = static_cast<double>(std::max<std::int64_t>(0, end - begin));
  const auto B = static_cast<double>(p.B), H = static_cast<double>(p.H), Hk = static_cast<double>(p.Hk);
  const auto M = static_cast<double>(p.M), D = static_cast<double>(p.D), Dv = static_cast<double>(p.Dv);
  const auto in = static_cast<double>(size_of(p.dtype)), out = static_cast<double>(size_of(p.out_dtype()));
  const double heads_of_keys = p.layout == test::Layout::broadcast ? 1 : B * Hk;
  const double forward =
      B * H * M * (D * in + Dv * out + (p.lse ? 4 : 0)) + heads_of_keys * keys * (D + Dv) * in;
  if (p.passes == test::Passes::forward) return forward;
  const auto gradient = static_cast<double>(size_of(p.gradient_dtype()));
  const double backward = B * H * M * ((D + 2 * Dv) * in + 4 + D * gradient) +
                          heads_of_keys * keys * (D + Dv) * in +
                          B * Hk * static_cast<double>(p.N) * (D + Dv) * gradient;
  return p.passes == test::Passes::backward ? backward : forward + backward;
}

}  // namespace fa::bench
