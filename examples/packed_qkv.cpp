// Causal attention on the packed output of a projection, [B, S, H + 2 Hk, D], without copying it apart; and
// what the library says about its choice.
#include <flashattn/flashattn.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const int B = 2, S = 512, H = 8, Hk = 2, D = 64;  // 8 query heads share 2 key heads
  const int heads = H + 2 * Hk;
  std::vector<float> qkv(static_cast<std::size_t>(B) * S * heads * D);  // [B, S, H + 2 Hk, D]
  std::vector<float> out(static_cast<std::size_t>(B) * S * H * D);      // [B, S, H, D]
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = std::sin(0.001f * static_cast<float>(i));

  fa::ForwardArgs<float> args;
  args.q = fa::packed_heads(qkv.data(), B, S, heads, D, 0, H);
  args.k = fa::packed_heads(qkv.data(), B, S, heads, D, H, Hk);
  args.v = fa::packed_heads(qkv.data(), B, S, heads, D, H + Hk, Hk);
  args.out = fa::bshd(out.data(), B, H, S, D);
  args.mask = fa::Mask::causal();

  try {
    std::printf("%s\n", fa::explain(args).text.c_str());
    fa::forward(args);
  } catch (const fa::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }

  // The first query sees the first key alone: its output is that key's V.
  const float expected = qkv[static_cast<std::size_t>(H + Hk) * D];
  std::printf("out[0] = %g, v[0] = %g\n", static_cast<double>(out[0]), static_cast<double>(expected));
  return std::fabs(out[0] - expected) < 1e-6f ? 0 : 1;
}
