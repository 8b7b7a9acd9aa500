// A rung that has no kernel for the element type.
// expected: flashattn: this pair of Version and T does not exist
// expected: static_assert_pair_exists<fa::Version::V5, float
#include <flashattn/flashattn.hpp>

void call(const fa::ForwardArgs<float>& args) {
#if defined(CORRECT)
  fa::forward<fa::CPU, float>(args);
#else
  fa::forward<fa::V5, float>(args);
#endif
}
