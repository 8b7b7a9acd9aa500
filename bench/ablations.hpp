/// The variants of rungs that this build holds (FLASHATTN_ABLATIONS), and the tile sizes that were candidates
/// for them; none in any other build.
#pragma once

#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "bench/side.hpp"

namespace fa::bench {

struct Ablation {
  int index;         // of RowPlan::ablation
  std::string name;  // "v4:k_not_padded"
  std::string what;  // one line: what differs from the rung
  std::vector<Dtype> dtypes;
};

/// The flag that asks for them: --ablations, or --candidates.
const char* flag_of(const Selection& selection);

/// Those of a rung for a problem.
std::vector<Ablation> ablations_of(Version version, const Selection& selection, const test::Problem& problem);

const Ablation& ablation_at(int index);

/// Some variant of the selection is there for this problem.
bool have_ablations(const Selection& selection, const test::Problem& problem);

/// Throws UsageError where this build has no variants of a rung, saying how to get them.
void require_ablations(const Selection& selection);

/// Why it does not take the problem; empty: it does.
std::string why_no_ablation(int index, const fa_forward_args& args);

/// Throws std::runtime_error.
void run_ablation(int index, const fa_forward_args& args, struct ::CUstream_st* stream);

}  // namespace fa::bench
