// Gradients are written: a view of const elements is none.
// expected: Tensor<const float>
// expected: Tensor<float>
#include <flashattn/flashattn.hpp>

void fill(fa::BackwardArgs<float>& args, const float* data, float* gradient) {
#if defined(CORRECT)
  static_cast<void>(data);
  args.dq = fa::bhsd(gradient, 1, 1, 1, 64);
#else
  static_cast<void>(gradient);
  args.dq = fa::bhsd(data, 1, 1, 1, 64);
#endif
}
