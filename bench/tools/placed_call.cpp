#include "bench/tools/placed_call.hpp"

#include <initializer_list>
#include <vector>

#include <flashattn/error.hpp>

namespace fa::bench {

using test::GuardedBuffer;

std::unique_ptr<GuardedBuffer> PlacedCall::memory(std::size_t bytes, std::size_t misalignment) const {
  return std::make_unique<GuardedBuffer>(side_, bytes, static_cast<unsigned char>(0), misalignment);
}

std::unique_ptr<GuardedBuffer> PlacedCall::tensor(const test::Placed& placed, Dtype dtype) const {
  const std::size_t width = size_of(dtype);
  return memory(static_cast<std::size_t>(placed.elements) * width,
                problem_.layout == test::Layout::unaligned ? width : 0);
}

PlacedCall::PlacedCall(const test::Problem& problem, const test::Inputs& inputs, test::Side side)
    : problem_(problem), placed_(test::place(problem)), side_(side) {
  const test::Problem& p = problem_;
  const Dtype in = p.dtype, to = p.out_dtype();
  q_ = tensor(placed_.q, in);
  if (!placed_.one_buffer) {
    k_ = tensor(placed_.k, in);
    v_ = tensor(placed_.v, in);
  }
  GuardedBuffer& k = placed_.one_buffer ? *q_ : *k_;
  GuardedBuffer& v = placed_.one_buffer ? *q_ : *v_;
  out_ = tensor(placed_.out, to);
  if (p.lse) lse_ = memory(static_cast<std::size_t>(p.B * p.H * p.M) * sizeof(float));

  struct Part {
    const std::vector<float>& values;
    const test::Placed& placed;
  };
  const auto fill = [in](GuardedBuffer& buffer, std::initializer_list<Part> parts) {
    std::vector<std::byte> image(buffer.size());
    for (const Part& part : parts) test::scatter(part.values.data(), part.placed, in, image.data());
    buffer.write(image.data());
  };
  if (placed_.one_buffer) {
    fill(*q_, {{inputs.q, placed_.q}, {inputs.k, placed_.k}, {inputs.v, placed_.v}});
  } else {
    fill(*q_, {{inputs.q, placed_.q}});
    fill(k, {{inputs.k, placed_.k}});
    fill(v, {{inputs.v, placed_.v}});
  }

  detail::check(fa_forward_args_init(&args_, sizeof args_));
  args_.q = test::c_tensor(q_->data(), placed_.q, in);
  args_.k = test::c_tensor(k.data(), placed_.k, in);
  args_.v = test::c_tensor(v.data(), placed_.v, in);
  args_.out = test::c_tensor(out_->data(), placed_.out, to);
  args_.lse = p.lse ? static_cast<float*>(lse_->data()) : nullptr;
  test::set_options(args_, p);
}

void PlacedCall::supply_workspace(fa_version version) {
  std::size_t bytes = 0;
  detail::check(fa_forward_workspace_size(&args_, version, &bytes));
  workspace_ = memory(bytes);
  args_.workspace = workspace_->data();
  args_.workspace_size = bytes;
}

void* PlacedCall::extra_memory(std::size_t bytes) {
  extra_.reset();
  if (bytes == 0) return nullptr;
  extra_ = memory(bytes);
  return extra_->data();
}

test::Outputs<float> PlacedCall::read() const {
  const auto rows = static_cast<std::size_t>(problem_.B * problem_.H * problem_.M);
  test::Outputs<float> got;
  std::vector<std::byte> image(out_->size());
  out_->read(image.data());
  got.out.resize(rows * static_cast<std::size_t>(problem_.Dv));
  test::gather(image.data(), placed_.out, problem_.out_dtype(), got.out.data());
  if (lse_) {
    got.lse.resize(rows);
    lse_->read(got.lse.data());
  }
  return got;
}

}  // namespace fa::bench
