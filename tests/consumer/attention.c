/* What an outside C99 program does: one query, two keys. The scores are 0 and ln 3, so the weights are 1/4
 * and 3/4, O = 3/4 * 4 = 3 and LSE = ln 4. Backward with dO = 1: dV is the weights, Delta = 3, dS = 1/4 (0 -
 * 3) and 3/4 (4 - 3), dK = dS and dQ = 3/4 ln 3. */
#include <flashattn/flashattn.h>

#include <math.h>
#include <stdio.h>

static fa_tensor column(void* data, int64_t rows) {
  fa_tensor tensor = {data, FA_FLOAT32, 0, {1, 1, 0, 1}, {0, 0, 1, 1}};
  tensor.size[2] = rows;
  tensor.stride[0] = rows;
  tensor.stride[1] = rows;
  return tensor;
}

int main(void) {
  float q[] = {1.0f};
  float k[] = {0.0f, 1.09861228866811f};
  float v[] = {0.0f, 4.0f};
  float out = -1.0f;
  float lse = -1.0f;

  fa_forward_args args;
  if (fa_forward_args_init(&args, sizeof args) != FA_OK) {
    printf("wrong: init: %s\n", fa_last_error());
    return 1;
  }
  args.q = column(q, 1);
  args.k = column(k, 2);
  args.v = column(v, 2);
  args.out = column(&out, 1);
  args.lse = &lse;
  args.scale = 1.0f;
  args.scale_is_set = 1;
  if (fa_forward(&args, FA_AUTO, NULL) != FA_OK) {
    printf("wrong: forward: %s\n", fa_last_error());
    return 1;
  }
  if (fabsf(out - 3.0f) > 1e-5f || fabsf(lse - 1.38629436111989f) > 1e-5f) {
    printf("wrong: O = %g, LSE = %g\n", (double)out, (double)lse);
    return 1;
  }

  {
    float dout = 1.0f, dq = -1.0f, dk[] = {-1.0f, -1.0f}, dv[] = {-1.0f, -1.0f};
    fa_backward_args backward;
    if (fa_backward_args_init(&backward, sizeof backward) != FA_OK) {
      printf("wrong: init: %s\n", fa_last_error());
      return 1;
    }
    backward.q = args.q;
    backward.k = args.k;
    backward.v = args.v;
    backward.out = args.out;
    backward.lse = &lse;
    backward.dout = column(&dout, 1);
    backward.dq = column(&dq, 1);
    backward.dk = column(dk, 2);
    backward.dv = column(dv, 2);
    backward.scale = 1.0f;
    backward.scale_is_set = 1;
    if (fa_backward(&backward, FA_AUTO, NULL) != FA_OK) {
      printf("wrong: backward: %s\n", fa_last_error());
      return 1;
    }
    if (fabsf(dv[0] - 0.25f) > 1e-5f || fabsf(dv[1] - 0.75f) > 1e-5f || fabsf(dk[0] + 0.75f) > 1e-5f ||
        fabsf(dk[1] - 0.75f) > 1e-5f || fabsf(dq - 0.75f * 1.09861228866811f) > 1e-5f) {
      printf("wrong: dQ = %g, dK = %g, %g, dV = %g, %g\n", (double)dq, (double)dk[0], (double)dk[1],
             (double)dv[0], (double)dv[1]);
      return 1;
    }
  }

  args.q.size[3] = 2;
  if (fa_forward(&args, FA_AUTO, NULL) != FA_INVALID_ARGUMENT) {
    printf("wrong: no error\n");
    return 1;
  }
  printf("attention: ok (%s)\n", fa_last_error());
  return 0;
}
