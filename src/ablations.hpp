/// The C entry of flashattn_ablations: variants of the rungs, to be measured by bench alone. A build has it
/// with FLASHATTN_ABLATIONS; libflashattn never holds any of it.
#pragma once

#include <flashattn/flashattn.h>

extern "C" {

struct fa_ablation_info {
  fa_version version;  // the rung that it is a variant of
  const char* name;    // "k_not_padded"; static storage, as what
  const char* what;    // one line: what differs from the rung
  int32_t fp32, fp16;  // 1: there for this element type
};

int32_t fa_ablation_count(void);

/// `index` is from 0 to fa_ablation_count() - 1, here and below.
fa_ablation_info fa_ablation_get(int32_t index);

/// fa_forward by a variant, on the device. It takes what its rung takes, stand-ins aside, and needs no
/// workspace. Null, or why it did not run: valid until the thread's next call.
const char* fa_ablation_forward(int32_t index, const fa_forward_args* args, struct CUstream_st* stream);

}  // extern "C"
