/// The C entry of flashattn_ablations: variants of the rungs, to be measured by bench alone. A build has it
/// with FLASHATTN_ABLATIONS; libflashattn never holds any of it.
#pragma once

#include <flashattn/flashattn.h>

extern "C" {

struct fa_ablation_info {
  fa_version version;                      // the rung that it is a variant of
  const char* name;                        // "k_not_padded"; static storage, as what
  const char* what;                        // one line: what differs from the rung
  int32_t fp32, fp16;                      // 1: there for this element type
  int32_t is_candidate;                    // 1: one of the rung's tile sizes; 0: a variant
  int32_t head_dim_above, head_dim_up_to;  // it is for problems whose larger of D and Dv lies between
};

int32_t fa_ablation_count(void);

/// `index` is from 0 to fa_ablation_count() - 1, here and below.
fa_ablation_info fa_ablation_get(int32_t index);

/// Null, or why a variant does not take the problem, or why the arguments are no problem for a device: valid
/// until the thread's next call.
const char* fa_ablation_reject(int32_t index, const fa_forward_args* args);

/// fa_forward by a variant, on the device. It takes what its rung takes, stand-ins aside, and needs no
/// workspace. Null, or why it did not run: valid until the thread's next call.
const char* fa_ablation_forward(int32_t index, const fa_forward_args* args, struct CUstream_st* stream);

}  // extern "C"
