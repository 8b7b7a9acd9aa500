#include "bench/ablations.hpp"

#include <algorithm>
#include <stdexcept>

#include "bench/program.hpp"

#if FLASHATTN_HAVE_ABLATIONS
#include "src/ablations.hpp"
#endif

namespace fa::bench {

namespace {

struct Entry {
  Version version;
  bool is_candidate;
  std::int64_t head_dim_above, head_dim_up_to;  // the larger of D and Dv lies between
  Ablation ablation;

  bool is_for(const test::Problem& problem) const {
    const std::vector<Dtype>& dtypes = ablation.dtypes;
    const std::int64_t head_dim = std::max(problem.D, problem.Dv);
    return std::find(dtypes.begin(), dtypes.end(), problem.dtype) != dtypes.end() &&
           head_dim > head_dim_above && head_dim <= head_dim_up_to;
  }
};

std::vector<Entry> collect() {
  std::vector<Entry> entries;
#if FLASHATTN_HAVE_ABLATIONS
  for (int index = 0; index < fa_ablation_count(); ++index) {
    const fa_ablation_info info = fa_ablation_get(index);
    const Version version = static_cast<Version>(info.version);
    std::string rung = name_of(version);
    rung[0] = 'v';
    Ablation ablation = {index, rung + ":" + info.name, info.what, {}};
    if (info.fp32 != 0) ablation.dtypes.push_back(Dtype::float32);
    if (info.fp16 != 0) ablation.dtypes.push_back(Dtype::float16);
    entries.push_back(
        {version, info.is_candidate != 0, info.head_dim_above, info.head_dim_up_to, std::move(ablation)});
  }
#endif
  return entries;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = collect();
  return all;
}

}  // namespace

const char* flag_of(const Selection& selection) {
  return selection.candidates ? "--candidates" : "--ablations";
}

std::vector<Ablation> ablations_of(Version version, const Selection& selection,
                                   const test::Problem& problem) {
  std::vector<Ablation> found;
  for (const Entry& entry : entries()) {
    if (entry.version == version && entry.is_candidate == selection.candidates && entry.is_for(problem))
      found.push_back(entry.ablation);
  }
  return found;
}

const Ablation& ablation_at(int index) {
  return entries().at(static_cast<std::size_t>(index)).ablation;
}

bool have_ablations(const Selection& selection, const test::Problem& problem) {
  return std::any_of(selection.ablations.begin(), selection.ablations.end(),
                     [&](Version version) { return !ablations_of(version, selection, problem).empty(); });
}

void require_ablations(const Selection& selection) {
  const std::string flag = flag_of(selection);
  if (entries().empty()) {
    throw UsageError(flag +
                     ": this build has none; configure one with -DFLASHATTN_ABLATIONS=ON (bench/README.md, "
                     "\"Ablations\")");
  }
  std::string rungs;
  std::vector<Version> have;
  for (const Entry& entry : entries()) {
    if (entry.is_candidate != selection.candidates || (!have.empty() && have.back() == entry.version))
      continue;
    have.push_back(entry.version);
    rungs += (rungs.empty() ? "" : ", ") + std::string(name_of(entry.version));
  }
  for (const Version version : selection.ablations) {
    if (std::find(have.begin(), have.end(), version) == have.end())
      throw UsageError(flag + ": there are none of " + name_of(version) + ", only of " + rungs);
  }
}

std::string why_no_ablation(int index, const fa_forward_args& args) {
#if FLASHATTN_HAVE_ABLATIONS
  const char* const reason = fa_ablation_reject(index, &args);
  return reason == nullptr ? "" : reason;
#else
  (void)index, (void)args;
  return "";
#endif
}

void run_ablation(int index, const fa_forward_args& args, struct ::CUstream_st* stream) {
#if FLASHATTN_HAVE_ABLATIONS
  const char* const error = fa_ablation_forward(index, &args, stream);
  if (error != nullptr) throw std::runtime_error(ablation_at(index).name + ": " + error);
#else
  (void)index, (void)args, (void)stream;
#endif
}

}  // namespace fa::bench
