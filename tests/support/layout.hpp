/// Where a problem's elements lie in memory, as its layout says, and the C interface's view of a problem.
#pragma once

#include <cstddef>

#include "tests/support/problem.hpp"

namespace fa::test {

/// Where a tensor's elements lie within its buffer; all in elements. Strides as in fa_tensor.
struct Placed {
  std::int64_t size[4];
  std::int64_t stride[4];
  std::int64_t offset;    // of element [0, 0, 0, 0]
  std::int64_t elements;  // of the buffer: it ends with the tensor's last element
};

struct PlacedProblem {
  Placed q, k, v, out;
  bool one_buffer;  // q, k and v are slices of one buffer; all three have its length
};

/// Layout::unaligned also wants every buffer one element off its alignment: the caller's part.
PlacedProblem place(const Problem& problem);

/// The same of the backward pass: dout lies as out does (or with stride 0), dq as q, dk and dv as k and v.
/// Where the layout is `packed` dq, dk and dv are slices of one buffer of their own; where it is `broadcast`
/// dk and dv are contiguous, since gradients share no element.
struct PlacedBackward {
  PlacedProblem forward;
  Placed dout, dq, dk, dv;
  bool one_gradient_buffer;
};

PlacedBackward place_backward(const Problem& problem);

/// Writes values [n0, n1, n2, n3] in logical order to `buffer`, as elements of `dtype`. Where strides are 0
/// the last of the values that share an element stays.
void scatter(const float* values, const Placed& placed, Dtype dtype, std::byte* buffer);

/// Reads them back.
void gather(const std::byte* buffer, const Placed& placed, Dtype dtype, float* values);

/// Sets every byte of the tensor's elements, and of nothing between them.
void fill_elements(std::byte* buffer, const Placed& placed, Dtype dtype, unsigned char byte);

/// The C interface's view. `buffer` may be null.
fa_tensor c_tensor(void* buffer, const Placed& placed, Dtype dtype);

/// Fills mask, scale and threads, and of backward deterministic; nothing else.
void set_options(fa_forward_args& args, const Problem& problem);
void set_options(fa_backward_args& args, const Problem& problem);

}  // namespace fa::test
