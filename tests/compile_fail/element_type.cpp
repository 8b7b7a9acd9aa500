// An element type that no tensor holds.
// expected: flashattn: a tensor's element type is float, fa::half, fa::bfloat16, __half or __nv_bfloat16
#include <flashattn/flashattn.hpp>

#if defined(CORRECT)
using Element = float;
#else
using Element = double;
#endif

void call(const fa::ForwardArgs<Element>& args) {
  fa::forward(fa::Auto, args);
}
