/// What a room's ablations.cu offers to a build with FLASHATTN_ABLATIONS (bench/README.md, "Ablations"):
/// variants of the rung's Config, each with one step taken back or one rejected idea put in.
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

}  // namespace fa::internal
