#include "tests/forward/rows.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/support/layout.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif
#if defined(FLASHATTN_TEST_CUBLAS)
#include "tests/support/device_reference.hpp"
#endif

namespace fa::test {
namespace {

#if defined(FLASHATTN_TEST_CUBLAS)
bool all_finite(const Inputs& inputs) {
  for (const std::vector<float>* values : {&inputs.q, &inputs.k, &inputs.v}) {
    if (!std::all_of(values->begin(), values->end(), [](float x) { return std::isfinite(x); })) return false;
  }
  return true;
}
#endif

}  // namespace

std::vector<Row> forward_rows() {
  return rows_of(Pass::forward);
}

std::vector<Row> forward_rows_of_16_bits() {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [](const Row& row) { return size_of(row.dtype) != 2; });
  return rows;
}

std::vector<Row> forward_rows_of(Dtype dtype) {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [dtype](const Row& row) { return row.dtype != dtype; });
  return rows;
}

fa_forward_args make_args(const Array& q, const Array& k, const Array& v, const Array& out) {
  fa_forward_args args;
  if (fa_forward_args_init(&args, sizeof args) != FA_OK) throw std::runtime_error(fa_last_error());
  args.q = q.tensor();
  args.k = k.tensor();
  args.v = v.tensor();
  args.out = out.tensor();
  return args;
}

fa_status run_args(const fa_forward_args& args, const Row& row) {
  const fa_status status = fa_forward(&args, static_cast<fa_version>(row.version), nullptr);
#if defined(FLASHATTN_TEST_CUDA)
  if (row.side == Side::device && cudaDeviceSynchronize() != cudaSuccess) return FA_CUDA_ERROR;
#endif
  return status;
}

Explanation explain_problem(const Problem& problem, const Row& row) {
  // explain reads no element: ranges of address space are enough, shifted as run_forward shifts them.
  const Problem& p = problem;
  const PlacedProblem placed = place(p);
  const auto shift = [&](Dtype dtype) { return p.layout == Layout::unaligned ? size_of(dtype) : 0; };
  const auto room = [&](const Placed& t, Dtype dtype) {
    return static_cast<std::size_t>(t.elements) * size_of(dtype) + shift(dtype);
  };
  const std::size_t lse_bytes = static_cast<std::size_t>(p.B * p.H * p.M + 1) * sizeof(float);
  const Memory q(row.side, room(placed.q, p.dtype)),
      own_k(row.side, placed.one_buffer ? 0 : room(placed.k, p.dtype)),
      own_v(row.side, placed.one_buffer ? 0 : room(placed.v, p.dtype)),
      out(row.side, room(placed.out, p.out_dtype())), lse(row.side, lse_bytes);
  const auto tensor = [&](const Memory& memory, const Placed& t, Dtype dtype) {
    return c_tensor(static_cast<char*>(memory.data()) + shift(dtype), t, dtype);
  };
  fa_forward_args args;
  if (fa_forward_args_init(&args, sizeof args) != FA_OK) throw std::runtime_error(fa_last_error());
  args.q = tensor(q, placed.q, p.dtype);
  args.k = tensor(placed.one_buffer ? q : own_k, placed.k, p.dtype);
  args.v = tensor(placed.one_buffer ? q : own_v, placed.v, p.dtype);
  args.out = tensor(out, placed.out, p.out_dtype());
  args.lse = p.lse ? static_cast<float*>(lse.data()) : nullptr;
  args.mask = {p.mask.left, p.mask.right, static_cast<std::int32_t>(p.mask.alignment), 0};
  args.scale = p.scale.value_or(0.0f);
  args.scale_is_set = p.scale.has_value() ? 1 : 0;
  args.threads = p.threads;

  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  std::size_t length = 0;
  const fa_version version = static_cast<fa_version>(row.version);
  if (fa_forward_explain(&args, version, &plan, nullptr, 0, &length) != FA_OK) {
    throw std::runtime_error(std::string("explain: ") + fa_last_error());
  }
  std::string text(length + 1, '\0');
  fa_forward_explain(&args, version, &plan, text.data(), text.size(), nullptr);
  text.resize(length);
  Explanation e;
  e.runs = plan.runs != 0;
  e.version = static_cast<Version>(plan.version);
  e.workspace_size = plan.workspace_size;
  e.kernel = plan.kernel == nullptr ? "" : plan.kernel;
  e.text = text;
  return e;
}

std::string kernel_of(const fa_forward_args& args, const Row& row) {
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  if (fa_forward_explain(&args, static_cast<fa_version>(row.version), &plan, nullptr, 0, nullptr) != FA_OK) {
    throw std::runtime_error(std::string("explain: ") + fa_last_error());
  }
  return plan.kernel == nullptr ? "" : plan.kernel;
}

bool takes(Problem problem, const Row& row) {
  problem.dtype = row.dtype;
  return explain_problem(problem, row).kernel == row.kernel;
}

std::optional<Outputs<float>> run_row(const Problem& problem, const Inputs& inputs, const Row& row) {
  Problem p = problem;
  p.dtype = row.dtype;
  const std::string line = to_string(p);
  try {
    const RunResult result = run_forward(p, inputs, row.version, row.side);
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

bool check_row(Problem problem, const Inputs& inputs, const Row& row) {
  problem.dtype = row.dtype;
  const std::optional<Outputs<float>> got = run_row(problem, inputs, row);
  if (!got) return false;
  const Reference reference = make_reference(problem, inputs);
  EXPECT_EQ(check_forward(problem, reference, inputs, *got), "") << to_string(problem);
#if defined(FLASHATTN_TEST_CUBLAS)
  // A second opinion that shares nothing with the oracle: cuBLAS + softmax in fp32.
  if (row.side == Side::device && all_finite(inputs)) {
    const Outputs<float> second = device_reference_forward(problem, inputs);
    const Reference other = {{{second.out.begin(), second.out.end()}, {second.lse.begin(), second.lse.end()}},
                             reference.yardstick};
    EXPECT_EQ(check_forward(problem, other, inputs, *got), "")
        << "against cuBLAS + softmax: " << to_string(problem);
  }
#endif
  return true;
}

bool check_row(Problem problem, const Row& row) {
  problem.dtype = row.dtype;
  return check_row(problem, make_inputs(problem), row);
}

}  // namespace fa::test
