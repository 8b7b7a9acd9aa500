// A rung that has no backward kernel for the element type, though it has one for forward.
// expected: flashattn: this pair of Version and T does not exist
// expected: static_assert_pair_exists<fa::Version::V4, float
#include <flashattn/flashattn.hpp>

void call(const fa::BackwardArgs<float>& args) {
#if defined(CORRECT)
  fa::backward<fa::CPU, float>(args);
#else
  fa::backward<fa::V4, float>(args);
#endif
}
