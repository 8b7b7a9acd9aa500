/// The variants of rungs that this build holds (FLASHATTN_ABLATIONS); none in any other.
#pragma once

#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::bench {

struct Ablation {
  int index;         // of RowPlan::ablation
  std::string name;  // "v4:k_not_padded"
  std::string what;  // one line: what differs from the rung
  std::vector<Dtype> dtypes;
};

/// Those of a rung for an element type.
std::vector<Ablation> ablations_of(Version version, Dtype dtype);

const Ablation& ablation_at(int index);

/// Some variant of the rungs is there for this element type.
bool have_ablations(const std::vector<Version>& versions, Dtype dtype);

/// Throws UsageError where this build has no variants of a rung, saying how to get them.
void require_ablations(const std::vector<Version>& versions);

/// Throws std::runtime_error.
void run_ablation(int index, const fa_forward_args& args, struct ::CUstream_st* stream);

}  // namespace fa::bench
