// What an outside C++17 program does: one query, two keys. The scores are 0 and ln 3, so the weights are 1/4
// and 3/4, O = 3/4 * 4 = 3 and LSE = ln 4.
#include <flashattn/flashattn.hpp>

#include <cmath>
#include <cstdio>
#include <string>

int main() {
  const float q[] = {1.0f};
  const float k[] = {0.0f, std::log(3.0f)};
  const float v[] = {0.0f, 4.0f};
  float out = -1.0f;
  float lse = -1.0f;

  fa::ForwardArgs<float> args;
  args.q = fa::bhsd(q, 1, 1, 1, 1);
  args.k = fa::bhsd(k, 1, 1, 2, 1);
  args.v = fa::bhsd(v, 1, 1, 2, 1);
  args.out = fa::bhsd(&out, 1, 1, 1, 1);
  args.lse = &lse;
  args.scale = 1.0f;
  fa::forward(args);
  if (std::fabs(out - 3.0f) > 1e-5f || std::fabs(lse - std::log(4.0f)) > 1e-5f) {
    std::printf("wrong: O = %g, LSE = %g\n", static_cast<double>(out), static_cast<double>(lse));
    return 1;
  }

  // Exceptions cross no boundary: they are thrown in the header, and are the program's own types.
  args.k.size[1] = 3;
  args.q.size[1] = 8;
  try {
    fa::forward(args);
    std::printf("wrong: no error\n");
    return 1;
  } catch (const fa::InvalidArgument& error) {
    std::printf("attention: ok (%s)\n", error.what());
  }
  return 0;
}
