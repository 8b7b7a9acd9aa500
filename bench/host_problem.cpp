#include "bench/host_problem.hpp"

#include <algorithm>
#include <cstring>

namespace fa::bench {

namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

void HostProblem::Buffer::resize(const test::Placed& placed, Dtype dtype, std::size_t misalignment) {
  bytes.resize(static_cast<std::size_t>(placed.elements) * size_of(dtype) + kAlignment + misalignment);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  data = bytes.data() + (kAlignment - address % kAlignment) % kAlignment + misalignment;
}

HostProblem::HostProblem(const test::Problem& problem, const test::Inputs& inputs)
    : problem_(problem), placed_(test::place(problem)) {
  const auto off = [&](Dtype dtype) {
    return problem.layout == test::Layout::unaligned ? size_of(dtype) : std::size_t{0};
  };
  const Dtype in = problem.dtype, to = problem.out_dtype();
  q_.resize(placed_.q, in, off(in));
  if (!placed_.one_buffer) {
    k_.resize(placed_.k, in, off(in));
    v_.resize(placed_.v, in, off(in));
  }
  out_.resize(placed_.out, to, off(to));
  if (problem.lse) lse_.resize(static_cast<std::size_t>(problem.B * problem.H * problem.M));
  spoil_outputs();

  std::byte* const k = placed_.one_buffer ? q_.data : k_.data;
  std::byte* const v = placed_.one_buffer ? q_.data : v_.data;
  test::scatter(inputs.q.data(), placed_.q, in, q_.data);
  test::scatter(inputs.k.data(), placed_.k, in, k);
  test::scatter(inputs.v.data(), placed_.v, in, v);

  detail::check(fa_forward_args_init(&args_, sizeof args_));
  args_.q = test::c_tensor(q_.data, placed_.q, in);
  args_.k = test::c_tensor(k, placed_.k, in);
  args_.v = test::c_tensor(v, placed_.v, in);
  args_.out = test::c_tensor(out_.data, placed_.out, to);
  args_.lse = problem.lse ? lse_.data() : nullptr;
  test::set_options(args_, problem);
}

void HostProblem::spoil_outputs() {
  std::fill(out_.bytes.begin(), out_.bytes.end(), std::byte{0xff});
  if (!lse_.empty()) std::memset(lse_.data(), 0xff, lse_.size() * sizeof(float));
}

OutputRow HostProblem::row(std::int64_t b, std::int64_t h, std::int64_t i) const {
  test::Placed one = placed_.out;
  one.offset += b * one.stride[0] + h * one.stride[1] + i * one.stride[2];
  one.size[0] = one.size[1] = one.size[2] = 1;
  OutputRow result{std::vector<float>(static_cast<std::size_t>(problem_.Dv)), 0};
  test::gather(out_.data, one, problem_.out_dtype(), result.out.data());
  if (!lse_.empty()) result.lse = lse_[static_cast<std::size_t>((b * problem_.H + h) * problem_.M + i)];
  return result;
}

}  // namespace fa::bench
