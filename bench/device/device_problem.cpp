#include "bench/device/device_problem.hpp"

#include <algorithm>

#include "bench/device/random_fill.hpp"

namespace fa::bench {

namespace {

using test::Placed;
using test::Problem;

std::size_t rows_of(const Problem& p) {
  return static_cast<std::size_t>(p.B) * static_cast<std::size_t>(p.H) * static_cast<std::size_t>(p.M);
}

/// Reads rows [first, last) of one head, as fp32.
std::vector<float> read_rows(const fa_tensor& tensor, std::int64_t b, std::int64_t head, std::int64_t first,
                             std::int64_t last, const DeviceStream& stream) {
  const auto dtype = static_cast<Dtype>(tensor.dtype);
  const std::int64_t width = tensor.size[3], rows = last - first;
  std::vector<float> values(static_cast<std::size_t>(rows * width));
  if (values.empty()) return values;
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  const std::int64_t start = b * tensor.stride[0] + head * tensor.stride[1] + first * tensor.stride[2];
  const std::size_t row_bytes = static_cast<std::size_t>(width) * size_of(dtype);
  stream.wait();
  if (rows > 1 &&
      tensor.stride[2] < width) {  // rows that share elements: one at a time, since no pitch says so
    for (std::int64_t row = first; row < last; ++row) {
      const std::vector<float> one = read_rows(tensor, b, head, row, row + 1, stream);
      std::copy(one.begin(), one.end(), values.begin() + (row - first) * width);
    }
    return values;
  }
  check_cuda(cudaMemcpy2D(bytes.data(), row_bytes,
                          static_cast<const std::byte*>(tensor.data) +
                              start * static_cast<std::int64_t>(size_of(dtype)),
                          rows == 1 ? row_bytes : static_cast<std::size_t>(tensor.stride[2]) * size_of(dtype),
                          row_bytes, static_cast<std::size_t>(rows), cudaMemcpyDeviceToHost),
             "reading rows from the device: cudaMemcpy2D");
  const Placed flat = {{1, 1, rows, width}, {0, 0, width, 1}, 0, rows * width};
  test::gather(bytes.data(), flat, dtype, values.data());
  return values;
}

std::vector<float> read_all(const std::byte* buffer, const Placed& placed, Dtype dtype) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(placed.elements) * size_of(dtype));
  std::vector<float> values(
      static_cast<std::size_t>(placed.size[0] * placed.size[1] * placed.size[2] * placed.size[3]));
  if (values.empty()) return values;
  check_cuda(cudaMemcpy(bytes.data(), buffer, bytes.size(), cudaMemcpyDeviceToHost),
             "reading a tensor from the device: cudaMemcpy");
  test::gather(bytes.data(), placed, dtype, values.data());
  return values;
}

}  // namespace

std::size_t misalignment(const Problem& problem, Dtype dtype) {
  return problem.layout == test::Layout::unaligned ? size_of(dtype) : 0;
}

std::size_t buffer_bytes(const Problem& problem, const Placed& placed, Dtype dtype) {
  return static_cast<std::size_t>(placed.elements) * size_of(dtype) + misalignment(problem, dtype);
}

HeadReader rows_reader(const fa_tensor& tensor, const DeviceStream& stream) {
  return [&stream, tensor](std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t last) {
    return read_rows(tensor, b, head, first, last, stream);
  };
}

DeviceProblem::DeviceProblem(const Problem& problem, std::uint64_t seed, const DeviceStream& stream)
    : problem_(problem),
      placed_(test::place(problem)),
      q_(buffer_bytes(problem, placed_.q, problem.dtype)),
      k_(placed_.one_buffer ? 0 : buffer_bytes(problem, placed_.k, problem.dtype)),
      v_(placed_.one_buffer ? 0 : buffer_bytes(problem, placed_.v, problem.dtype)),
      out_(buffer_bytes(problem, placed_.out, problem.out_dtype())),
      lse_(problem.lse ? rows_of(problem) * sizeof(float) : 0) {
  const Dtype in = problem.dtype, to = problem.out_dtype();
  std::byte* const q = q_.data() + misalignment(problem, in);
  std::byte* const k = placed_.one_buffer ? q : k_.data() + misalignment(problem, in);
  std::byte* const v = placed_.one_buffer ? q : v_.data() + misalignment(problem, in);
  // What lies between the elements is NaN: nobody may read it.
  for (const DeviceMemory* memory : {&q_, &k_, &v_}) {
    check_cuda(cudaMemsetAsync(memory->data(), 0xff, memory->bytes(), stream), "cudaMemsetAsync");
  }
  const float q_factor = problem.data == test::Data::zero_q  ? 0.0f
                         : problem.data == test::Data::large ? 30.0f
                                                             : 1.0f;
  const float k_factor = problem.data == test::Data::large ? 30.0f : 1.0f;
  const std::uint64_t first = 1000 * problem.seed + 3 * seed;
  fill_normal(q, placed_.q, in, first, q_factor, stream);
  fill_normal(k, placed_.k, in, first + 1, k_factor, stream);
  fill_normal(v, placed_.v, in, first + 2, 1.0f, stream);
  spoil_outputs(stream);

  detail::check(fa_forward_args_init(&args_, sizeof args_));
  args_.q = test::c_tensor(q, placed_.q, in);
  args_.k = test::c_tensor(k, placed_.k, in);
  args_.v = test::c_tensor(v, placed_.v, in);
  args_.out = test::c_tensor(out_.data() + misalignment(problem, to), placed_.out, to);
  args_.lse = problem.lse ? reinterpret_cast<float*>(lse_.data()) : nullptr;
  test::set_options(args_, problem);
}

void DeviceProblem::spoil_outputs(const DeviceStream& stream) const {
  for (const DeviceMemory* memory : {&out_, &lse_}) {
    check_cuda(cudaMemsetAsync(memory->data(), 0xff, memory->bytes(), stream), "cudaMemsetAsync");
  }
}

InputReader DeviceProblem::input_reader(const DeviceStream& stream) const {
  return {rows_reader(args_.q, stream), rows_reader(args_.k, stream), rows_reader(args_.v, stream)};
}

OutputRow DeviceProblem::row(std::int64_t b, std::int64_t h, std::int64_t i,
                             const DeviceStream& stream) const {
  OutputRow result{read_rows(args_.out, b, h, i, i + 1, stream), 0};
  if (args_.lse != nullptr) {
    check_cuda(cudaMemcpy(&result.lse, args_.lse + (b * problem_.H + h) * problem_.M + i, sizeof(float),
                          cudaMemcpyDeviceToHost),
               "reading an LSE from the device: cudaMemcpy");
  }
  return result;
}

test::Inputs DeviceProblem::inputs(const DeviceStream& stream) const {
  stream.wait();
  // args_ points at element 0, the placements count from the buffer's start.
  const auto read = [&](const fa_tensor& tensor, const Placed& placed) {
    const auto* const buffer = static_cast<const std::byte*>(tensor.data) -
                               placed.offset * static_cast<std::int64_t>(size_of(problem_.dtype));
    return read_all(buffer, placed, problem_.dtype);
  };
  return {read(args_.q, placed_.q), read(args_.k, placed_.k), read(args_.v, placed_.v)};
}

test::Outputs<float> DeviceProblem::outputs(const DeviceStream& stream) const {
  stream.wait();
  test::Outputs<float> result;
  result.out = read_all(static_cast<const std::byte*>(args_.out.data), placed_.out, problem_.out_dtype());
  result.lse.resize(args_.lse == nullptr ? 0 : rows_of(problem_));
  if (!result.lse.empty()) {
    check_cuda(
        cudaMemcpy(result.lse.data(), args_.lse, result.lse.size() * sizeof(float), cudaMemcpyDeviceToHost),
        "reading the LSE from the device: cudaMemcpy");
  }
  return result;
}

}  // namespace fa::bench
