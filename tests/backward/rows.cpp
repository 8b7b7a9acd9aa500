#include "tests/backward/rows.hpp"

#include <stdexcept>

#include "tests/support/layout.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace fa::test {
namespace {

fa_backward_args default_args() {
  fa_backward_args args;
  if (fa_backward_args_init(&args, sizeof args) != FA_OK) throw std::runtime_error(fa_last_error());
  return args;
}

std::string explain_text(const fa_backward_args& args, fa_version version, fa_backward_plan& plan) {
  std::size_t length = 0;
  if (fa_backward_explain(&args, version, &plan, nullptr, 0, &length) != FA_OK) {
    throw std::runtime_error(std::string("explain: ") + fa_last_error());
  }
  std::string text(length + 1, '\0');
  fa_backward_explain(&args, version, &plan, text.data(), text.size(), nullptr);
  text.resize(length);
  return text;
}

}  // namespace

std::vector<Row> backward_rows() {
  return rows_of(Pass::backward);
}

Explanation explain_problem(const Problem& problem, const Row& row) {
  // explain reads no element: ranges of address space are enough, shifted as run_backward shifts them.
  const Problem& p = problem;
  const PlacedBackward placed = place_backward(p);
  const Dtype dtype = p.dtype, dtype_gradient = p.gradient_dtype();
  const auto shift = [&](Dtype of) { return p.layout == Layout::unaligned ? size_of(of) : 0; };
  const auto room = [&](const Placed& t, Dtype of) {
    return static_cast<std::size_t>(t.elements) * size_of(of) + shift(of);
  };
  const bool one = placed.forward.one_buffer, one_gradient = placed.one_gradient_buffer;
  const Memory q(row.side, room(placed.forward.q, dtype)),
      own_k(row.side, one ? 0 : room(placed.forward.k, dtype)),
      own_v(row.side, one ? 0 : room(placed.forward.v, dtype)),
      out(row.side, room(placed.forward.out, dtype)), dout(row.side, room(placed.dout, dtype)),
      dq(row.side, room(placed.dq, dtype_gradient)),
      own_dk(row.side, one_gradient ? 0 : room(placed.dk, dtype_gradient)),
      own_dv(row.side, one_gradient ? 0 : room(placed.dv, dtype_gradient)),
      lse(row.side, static_cast<std::size_t>(p.B * p.H * p.M + 1) * sizeof(float));
  const auto tensor = [&](const Memory& memory, const Placed& t, Dtype of) {
    return c_tensor(static_cast<char*>(memory.data()) + shift(of), t, of);
  };
  fa_backward_args args = default_args();
  args.q = tensor(q, placed.forward.q, dtype);
  args.k = tensor(one ? q : own_k, placed.forward.k, dtype);
  args.v = tensor(one ? q : own_v, placed.forward.v, dtype);
  args.out = tensor(out, placed.forward.out, dtype);
  args.dout = tensor(dout, placed.dout, dtype);
  args.dq = tensor(dq, placed.dq, dtype_gradient);
  args.dk = tensor(one_gradient ? dq : own_dk, placed.dk, dtype_gradient);
  args.dv = tensor(one_gradient ? dq : own_dv, placed.dv, dtype_gradient);
  args.lse = static_cast<const float*>(lse.data());
  set_options(args, p);

  fa_backward_plan plan = {};
  plan.size = sizeof plan;
  Explanation e;
  e.text = explain_text(args, static_cast<fa_version>(row.version), plan);
  e.runs = plan.runs != 0;
  e.version = static_cast<Version>(plan.version);
  e.workspace_size = plan.workspace_size;
  e.kernel = plan.kernel == nullptr ? "" : plan.kernel;
  return e;
}

bool takes(Problem problem, const Row& row) {
  problem.dtype = row.dtype;
  return explain_problem(problem, row).kernel == row.kernel;
}

std::optional<Gradients<float>> run_row(const Problem& problem, const BackwardInputs& inputs,
                                        const Row& row) {
  Problem p = problem;
  p.dtype = row.dtype;
  p.passes = Passes::backward;  // so that its line is one for bench_attention
  const std::string line = to_string(p);
  try {
    const BackwardRunResult result = run_backward(p, inputs, row.version, row.side);
    ++tallies()[row.kernel].ran;
    EXPECT_EQ(result.guard_damage, "") << line;
    return result.got;
  } catch (const Unsupported& e) {
    ++tallies()[row.kernel].rejected;
    if (row.version == Version::CPU) {
      ADD_FAILURE() << "the CPU backend takes every problem, but: " << e.what() << "\n" << line;
      return std::nullopt;
    }
    const Explanation said = explain_problem(p, row);
    EXPECT_FALSE(said.runs) << line << "\nexplain says that it runs, but: " << e.what();
    EXPECT_STRNE(e.what(), "") << line;
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what() << "\n" << line;
  }
  return std::nullopt;
}

bool check_row(Problem problem, const BackwardInputs& inputs, const Row& row) {
  problem.dtype = row.dtype;
  problem.passes = Passes::backward;
  const std::optional<Gradients<float>> got = run_row(problem, inputs, row);
  if (!got) return false;
  EXPECT_EQ(check_backward(problem, inputs, *got), "") << to_string(problem);
  return true;
}

bool check_row(Problem problem, const Row& row) {
  problem.dtype = row.dtype;
  return check_row(problem, make_backward_inputs(problem), row);
}

std::vector<std::uint32_t> bits_of(const Gradients<float>& gradients) {
  std::vector<std::uint32_t> all;
  for (const std::vector<float>* values : {&gradients.dq, &gradients.dk, &gradients.dv}) {
    const std::vector<std::uint32_t> bits = bits_of(*values);
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

Arrays::Arrays(const Problem& p, const BackwardInputs& inputs, Side side)
    : q(side, p.dtype, {p.B, p.H, p.M, p.D}),
      k(side, p.dtype, {p.B, p.Hk, p.N, p.D}),
      v(side, p.dtype, {p.B, p.Hk, p.N, p.Dv}),
      out(side, p.dtype, {p.B, p.H, p.M, p.Dv}),
      dout(side, p.dtype, {p.B, p.H, p.M, p.Dv}),
      dq(side, p.gradient_dtype(), {p.B, p.H, p.M, p.D}),
      dk(side, p.gradient_dtype(), {p.B, p.Hk, p.N, p.D}),
      dv(side, p.gradient_dtype(), {p.B, p.Hk, p.N, p.Dv}),
      lse(side, inputs.lse.size() * sizeof(float)) {
  q.set(inputs.in.q);
  k.set(inputs.in.k);
  v.set(inputs.in.v);
  out.set(inputs.out);
  dout.set(inputs.dout);
  for (Array* gradient : {&dq, &dk, &dv}) gradient->fill(0xff);
  if (!inputs.lse.empty()) lse.write(0, inputs.lse.data(), inputs.lse.size() * sizeof(float));
}

fa_backward_args Arrays::args(const Problem& problem) const {
  fa_backward_args args = default_args();
  args.q = q.tensor();
  args.k = k.tensor();
  args.v = v.tensor();
  args.out = out.tensor();
  args.dout = dout.tensor();
  args.dq = dq.tensor();
  args.dk = dk.tensor();
  args.dv = dv.tensor();
  args.lse = static_cast<const float*>(lse.data());
  set_options(args, problem);
  return args;
}

fa_status run_args(const fa_backward_args& args, const Row& row) {
  const fa_status status = fa_backward(&args, static_cast<fa_version>(row.version), nullptr);
#if defined(FLASHATTN_TEST_CUDA)
  if (row.side == Side::device && cudaDeviceSynchronize() != cudaSuccess) return FA_CUDA_ERROR;
#endif
  return status;
}

}  // namespace fa::test
