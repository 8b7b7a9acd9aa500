/* A shared library that uses libflashattn inside. */
#include <flashattn/flashattn.h>

#define PLUGIN __attribute__((visibility("default")))

PLUGIN float plugin_attention(void);
PLUGIN int plugin_fail(void);
PLUGIN const char *plugin_error(void);

static fa_forward_args problem(float *q, float *k, float *v, float *out) {
  const fa_tensor one = {0, FA_FLOAT32, 0, {1, 1, 1, 1}, {1, 1, 1, 1}};
  const fa_tensor two = {0, FA_FLOAT32, 0, {1, 1, 2, 1}, {2, 2, 1, 1}};
  fa_forward_args args;
  fa_forward_args_init(&args, sizeof args);
  args.q = args.out = one;
  args.k = args.v = two;
  args.q.data = q;
  args.k.data = k;
  args.v.data = v;
  args.out.data = out;
  args.scale = 1.0f;
  args.scale_is_set = 1;
  return args;
}

float plugin_attention(void) {
  float q[] = {1.0f}, k[] = {0.0f, 1.09861228866811f}, v[] = {0.0f, 4.0f}, out = -1.0f;
  const fa_forward_args args = problem(q, k, v, &out);
  return fa_forward(&args, FA_AUTO, 0) == FA_OK ? out : -2.0f;
}

int plugin_fail(void) {
  return fa_forward(0, FA_AUTO, 0) == FA_INVALID_ARGUMENT;
}

const char *plugin_error(void) {
  return fa_last_error();
}
