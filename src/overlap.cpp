#include "src/overlap.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace fa::internal {
namespace {

// One unknown u of the sum  coefficient * u,  0 <= u <= bound.
struct Term {
  int64_t coefficient;
  int64_t bound;
};

// Smallest coefficient first. There are a handful at the most.
void sort_by_coefficient(std::span<Term> terms) {
  for (size_t end = 1; end < terms.size(); ++end) {
    for (size_t i = end; i > 0 && terms[i].coefficient < terms[i - 1].coefficient; --i) {
      std::swap(terms[i], terms[i - 1]);
    }
  }
}

// Whether  lo <= sum coefficient[i] * u[i] <= hi  has a solution: a bounded linear Diophantine problem,
// solved by depth-first search from the largest coefficient down, cut by the reach and by the greatest common
// divisor of what remains. (NumPy's shares_memory states the problem the same way.)
class BoundedSum {
 public:
  void add(int64_t coefficient, int64_t bound) {
    if (coefficient == 0 || bound == 0) return;
    for (int i = 0; i < size_; ++i) {
      if (terms_[i].coefficient == coefficient) {
        terms_[i].bound += bound;
        return;
      }
    }
    terms_[size_++] = {coefficient, bound};
  }

  Sharing reaches(int64_t lo, int64_t hi) {
    sort_by_coefficient({terms_, static_cast<size_t>(size_)});
    std::reverse(terms_, terms_ + size_);
    reach_[size_] = 0;
    divisor_[size_] = 0;
    for (int i = size_ - 1; i >= 0; --i) {
      reach_[i] = reach_[i + 1] + terms_[i].coefficient * terms_[i].bound;
      divisor_[i] = std::gcd(divisor_[i + 1], terms_[i].coefficient);
    }
    steps_ = 0;
    return search(0, lo, hi);
  }

 private:
  static constexpr int kMaxSteps = 100000;

  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }
  static int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

  Sharing search(int i, int64_t lo, int64_t hi) {
    if (hi < 0 || lo > reach_[i]) return Sharing::none;
    if (lo <= 0) return Sharing::some;  // every remaining unknown 0
    if (i == size_) return Sharing::none;
    if (ceil_div(lo, divisor_[i]) * divisor_[i] > hi) return Sharing::none;
    const Term& term = terms_[i];
    const int64_t first = std::max<int64_t>(0, ceil_div(lo - reach_[i + 1], term.coefficient));
    const int64_t last = std::min(term.bound, floor_div(hi, term.coefficient));
    for (int64_t u = first; u <= last; ++u) {
      if (++steps_ > kMaxSteps) return Sharing::undecided;
      const int64_t part = term.coefficient * u;
      const Sharing found = search(i + 1, lo - part, hi - part);
      if (found != Sharing::none) return found;
    }
    return Sharing::none;
  }

  Term terms_[8]{};
  int64_t reach_[9]{};    // largest sum of terms i and after
  int64_t divisor_[9]{};  // greatest common divisor of their coefficients
  int size_ = 0;
  int steps_ = 0;
};

bool is_empty(const Footprint& a) {
  return a.run_bytes == 0 || a.count[0] == 0 || a.count[1] == 0 || a.count[2] == 0;
}

int64_t span(const Footprint& a) {
  int64_t bytes = a.run_bytes;
  for (int i = 0; i < 3; ++i) bytes += a.stride_bytes[i] * (a.count[i] - 1);
  return bytes;
}

}  // namespace

Sharing shared(const Footprint& a, const Footprint& b) {
  if (is_empty(a) || is_empty(b)) return Sharing::none;
  const uintptr_t distance = a.base < b.base ? b.base - a.base : a.base - b.base;
  if (distance >= static_cast<uintptr_t>(a.base < b.base ? span(a) : span(b))) return Sharing::none;

  // Runs at A and B meet where  -a.run_bytes < A - B < b.run_bytes. With b's indices counted from their ends,
  // every unknown of A - B has a positive coefficient.
  int64_t constant = a.base < b.base ? -static_cast<int64_t>(distance) : static_cast<int64_t>(distance);
  BoundedSum sum;
  for (int i = 0; i < 3; ++i) {
    sum.add(a.stride_bytes[i], a.count[i] - 1);
    sum.add(b.stride_bytes[i], b.count[i] - 1);
    constant -= b.stride_bytes[i] * (b.count[i] - 1);
  }
  return sum.reaches(1 - a.run_bytes - constant, b.run_bytes - 1 - constant);
}

Sharing shared_within(const Footprint& a) {
  if (is_empty(a)) return Sharing::none;
  Term dims[3]{};
  int size = 0;
  for (int i = 0; i < 3; ++i) {
    if (a.count[i] > 1) dims[size++] = {a.stride_bytes[i], a.count[i] - 1};
  }
  sort_by_coefficient({dims, static_cast<size_t>(size)});

  // The usual case: each dimension steps over all that the smaller ones span.
  int64_t inner = a.run_bytes;
  bool nested = true;
  for (int i = 0; i < size; ++i) {
    nested = nested && dims[i].coefficient >= inner;
    inner += dims[i].coefficient * dims[i].bound;
  }
  if (nested) return Sharing::none;

  // Two indices differ by d, whose first nonzero entry, from the largest stride down, may be taken positive.
  for (int lead = size - 1; lead >= 0; --lead) {
    BoundedSum sum;
    int64_t constant = dims[lead].coefficient;
    sum.add(dims[lead].coefficient, dims[lead].bound - 1);
    for (int i = 0; i < lead; ++i) {
      sum.add(dims[i].coefficient, 2 * dims[i].bound);
      constant -= dims[i].coefficient * dims[i].bound;
    }
    const Sharing found = sum.reaches(1 - a.run_bytes - constant, a.run_bytes - 1 - constant);
    if (found != Sharing::none) return found;
  }
  return Sharing::none;
}

}  // namespace fa::internal
