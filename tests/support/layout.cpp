#include "tests/support/layout.hpp"

#include <algorithm>
#include <cstring>

namespace fa::test {
namespace {

/// `batch`, `head`, `seq`: strides.
Placed placed(std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D, std::int64_t batch,
              std::int64_t head, std::int64_t seq) {
  const bool empty = B == 0 || H == 0 || S == 0 || D == 0;
  const std::int64_t elements = empty ? 0 : (B - 1) * batch + (H - 1) * head + (S - 1) * seq + D;
  return {{B, H, S, D}, {batch, head, seq, 1}, 0, elements};
}

Placed bhsd_placed(std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
  return placed(B, H, S, D, H * S * D, S * D, D);
}

Placed bshd_placed(std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D) {
  return placed(B, H, S, D, S * H * D, D, H * D);
}

/// Gaps of `gap` elements after every row, head and batch; rows start at multiples of `unit`.
Placed gapped(std::int64_t B, std::int64_t H, std::int64_t S, std::int64_t D, std::int64_t unit,
              std::int64_t gap) {
  const std::int64_t seq = (D + unit - 1) / unit * unit + gap;
  const std::int64_t head = S * seq + gap;
  return placed(B, H, S, D, H * head + gap, head, seq);
}

/// Calls visit(row, at) for every row of the tensor in logical order, `at` the row's place in the buffer.
template <class Visit>
void for_each_row(const Placed& p, const Visit& visit) {
  std::int64_t row = 0;
  for (std::int64_t b = 0; b < p.size[0]; ++b) {
    for (std::int64_t h = 0; h < p.size[1]; ++h) {
      for (std::int64_t s = 0; s < p.size[2]; ++s) {
        visit(row++, p.offset + b * p.stride[0] + h * p.stride[1] + s * p.stride[2]);
      }
    }
  }
}

template <class T>
void scatter_as(const float* values, const Placed& p, std::byte* buffer) {
  for_each_row(p, [&](std::int64_t row, std::int64_t at) {
    for (std::int64_t d = 0; d < p.size[3]; ++d) {
      const T element(values[row * p.size[3] + d]);
      std::memcpy(buffer + static_cast<std::size_t>(at + d) * sizeof(T), &element, sizeof(T));
    }
  });
}

template <class T>
void gather_as(const std::byte* buffer, const Placed& p, float* values) {
  for_each_row(p, [&](std::int64_t row, std::int64_t at) {
    for (std::int64_t d = 0; d < p.size[3]; ++d) {
      T element;
      std::memcpy(&element, buffer + static_cast<std::size_t>(at + d) * sizeof(T), sizeof(T));
      values[row * p.size[3] + d] = static_cast<float>(element);
    }
  });
}

template <class Args>
void set_common_options(Args& args, const Problem& problem) {
  args.mask.left = problem.mask.left;
  args.mask.right = problem.mask.right;
  args.mask.alignment = static_cast<std::int32_t>(problem.mask.alignment);
  args.scale = problem.scale.value_or(0.0f);
  args.scale_is_set = problem.scale.has_value() ? 1 : 0;
  args.threads = problem.threads;
}

}  // namespace

PlacedProblem place(const Problem& problem) {
  const Problem& p = problem;
  const std::int64_t pack = p.H + 2 * p.Hk;  // heads of the packed projection
  const auto slice = [&](std::int64_t first, std::int64_t heads) {
    Placed part = placed(p.B, heads, p.M, p.D, p.M * pack * p.D, p.D, pack * p.D);
    part.offset = first * p.D;
    part.elements = p.B * p.M * pack * p.D;
    return part;
  };
  const auto unit = [](Dtype dtype) { return static_cast<std::int64_t>(16 / size_of(dtype)); };
  switch (p.layout) {
    case Layout::bhsd:
      break;
    case Layout::bshd:
      return {bshd_placed(p.B, p.H, p.M, p.D), bshd_placed(p.B, p.Hk, p.N, p.D),
              bshd_placed(p.B, p.Hk, p.N, p.Dv), bshd_placed(p.B, p.H, p.M, p.Dv), false};
    case Layout::packed:
      return {slice(0, p.H), slice(p.H, p.Hk), slice(p.H + p.Hk, p.Hk), bshd_placed(p.B, p.H, p.M, p.Dv),
              true};
    case Layout::padded: {
      const std::int64_t in = unit(p.dtype), out = unit(p.out_dtype());
      return {gapped(p.B, p.H, p.M, p.D, in, in), gapped(p.B, p.Hk, p.N, p.D, in, in),
              gapped(p.B, p.Hk, p.N, p.Dv, in, in), gapped(p.B, p.H, p.M, p.Dv, out, out), false};
    }
    case Layout::unaligned:
      return {gapped(p.B, p.H, p.M, p.D, 1, 1), gapped(p.B, p.Hk, p.N, p.D, 1, 1),
              gapped(p.B, p.Hk, p.N, p.Dv, 1, 1), gapped(p.B, p.H, p.M, p.Dv, 1, 1), false};
    case Layout::broadcast:
      return {bhsd_placed(p.B, p.H, p.M, p.D), placed(p.B, p.Hk, p.N, p.D, 0, 0, p.D),
              placed(p.B, p.Hk, p.N, p.Dv, 0, 0, p.Dv), bhsd_placed(p.B, p.H, p.M, p.Dv), false};
  }
  return {bhsd_placed(p.B, p.H, p.M, p.D), bhsd_placed(p.B, p.Hk, p.N, p.D),
          bhsd_placed(p.B, p.Hk, p.N, p.Dv), bhsd_placed(p.B, p.H, p.M, p.Dv), false};
}

PlacedBackward place_backward(const Problem& problem) {
  PlacedBackward placed;
  placed.forward = place(problem);
  placed.dout = placed.forward.out;
  if (problem.dout_broadcast) {
    placed.dout = fa::test::placed(problem.B, problem.H, problem.M, problem.Dv, 0, 0, 0);
  }
  // Gaps and rows are counted in elements of the tensor's own type.
  Problem of_gradients = problem;
  of_gradients.dtype = problem.gradient_dtype();
  if (problem.layout == Layout::broadcast) of_gradients.layout = Layout::bhsd;
  const PlacedProblem gradients = place(of_gradients);
  placed.dq = gradients.q;
  placed.dk = gradients.k;
  placed.dv = gradients.v;
  placed.one_gradient_buffer = gradients.one_buffer;
  return placed;
}

void scatter(const float* values, const Placed& placed, Dtype dtype, std::byte* buffer) {
  switch (dtype) {
    case Dtype::float32:
      return scatter_as<float>(values, placed, buffer);
    case Dtype::float16:
      return scatter_as<half>(values, placed, buffer);
    case Dtype::bfloat16:
      return scatter_as<bfloat16>(values, placed, buffer);
    case Dtype::none:
      break;
  }
}

void gather(const std::byte* buffer, const Placed& placed, Dtype dtype, float* values) {
  switch (dtype) {
    case Dtype::float32:
      return gather_as<float>(buffer, placed, values);
    case Dtype::float16:
      return gather_as<half>(buffer, placed, values);
    case Dtype::bfloat16:
      return gather_as<bfloat16>(buffer, placed, values);
    case Dtype::none:
      break;
  }
}

void fill_elements(std::byte* buffer, const Placed& placed, Dtype dtype, unsigned char byte) {
  const std::size_t width = size_of(dtype);
  for_each_row(placed, [&](std::int64_t, std::int64_t at) {
    std::memset(buffer + static_cast<std::size_t>(at) * width, byte,
                static_cast<std::size_t>(placed.size[3]) * width);
  });
}

fa_tensor c_tensor(void* buffer, const Placed& placed, Dtype dtype) {
  fa_tensor tensor = {};
  if (buffer != nullptr) {
    tensor.data = static_cast<std::byte*>(buffer) + static_cast<std::size_t>(placed.offset) * size_of(dtype);
  }
  tensor.dtype = static_cast<fa_dtype>(dtype);
  std::copy(placed.size, placed.size + 4, tensor.size);
  std::copy(placed.stride, placed.stride + 4, tensor.stride);
  return tensor;
}

void set_options(fa_forward_args& args, const Problem& problem) {
  set_common_options(args, problem);
}

void set_options(fa_backward_args& args, const Problem& problem) {
  set_common_options(args, problem);
  args.deterministic = problem.deterministic ? 1 : 0;
}

}  // namespace fa::test
