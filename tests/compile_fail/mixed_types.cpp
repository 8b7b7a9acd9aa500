// q of one element type, args of another.
// expected: Tensor<float>
// expected: Tensor<const fa::half>
#include <flashattn/flashattn.hpp>

void fill(fa::ForwardArgs<fa::half>& args, float* single, fa::half* half) {
#if defined(CORRECT)
  static_cast<void>(single);
  args.q = fa::bhsd(half, 1, 1, 1, 64);
#else
  static_cast<void>(half);
  args.q = fa::bhsd(single, 1, 1, 1, 64);
#endif
}
