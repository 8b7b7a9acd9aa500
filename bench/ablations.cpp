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
  Ablation ablation;
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
    entries.push_back({version, std::move(ablation)});
  }
#endif
  return entries;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = collect();
  return all;
}

}  // namespace

std::vector<Ablation> ablations_of(Version version, Dtype dtype) {
  std::vector<Ablation> found;
  for (const Entry& entry : entries()) {
    const std::vector<Dtype>& dtypes = entry.ablation.dtypes;
    if (entry.version == version && std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end())
      found.push_back(entry.ablation);
  }
  return found;
}

const Ablation& ablation_at(int index) {
  return entries().at(static_cast<std::size_t>(index)).ablation;
}

bool have_ablations(const std::vector<Version>& versions, Dtype dtype) {
  return std::any_of(versions.begin(), versions.end(),
                     [dtype](Version version) { return !ablations_of(version, dtype).empty(); });
}

void require_ablations(const std::vector<Version>& versions) {
  if (entries().empty()) {
    throw UsageError(
        "--ablations: this build has none; configure one with -DFLASHATTN_ABLATIONS=ON (bench/README.md, "
        "\"Ablations\")");
  }
  std::string rungs;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    if (i > 0 && entries()[i].version == entries()[i - 1].version) continue;
    rungs += (rungs.empty() ? "" : ", ") + std::string(name_of(entries()[i].version));
  }
  for (const Version version : versions) {
    const bool found = std::any_of(entries().begin(), entries().end(),
                                   [version](const Entry& entry) { return entry.version == version; });
    if (!found)
      throw UsageError(std::string("--ablations: there are none of ") + name_of(version) + ", only of " +
                       rungs);
  }
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
