/// What a room offers to a build with FLASHATTN_ABLATIONS (bench/README.md, "Ablations" and "Candidates"):
/// its kernel with another Config. Its ablations.cu has variants, each with one step taken back or one
/// rejected idea put in; its candidates.cu has the tile sizes that were tried.
#pragma once

#include <span>

#include "kernels/params.hpp"

namespace fa::internal {

struct Ablation {
  Version version;      // the rung; the variant takes what the rung takes
  const char* name;     // "k_not_padded"
  const char* what;     // one line, for people: what differs
  LaunchForward* fp32;  // null: not of this element type
  LaunchForward* fp16;
  bool is_candidate = false;  // one of the tile sizes, else a variant
  // It is for problems whose larger of D and Dv is above the first and up to the second.
  int32_t head_dim_above = 0, head_dim_up_to = 256;
  RejectForward* reject = nullptr;  // beyond what the rung rejects; null: nothing
};

namespace v4 {
std::span<const Ablation> ablations();
}
namespace v5 {
std::span<const Ablation> ablations();
}
namespace v6 {
std::span<const Ablation> ablations();
}
namespace v7 {
std::span<const Ablation> ablations();
std::span<const Ablation> candidates();
}  // namespace v7
namespace v8 {
std::span<const Ablation> ablations();
}

}  // namespace fa::internal
