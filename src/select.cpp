#include "src/select.hpp"

#include <cstring>

#include <flashattn/error.hpp>

#include "src/architectures.hpp"

namespace fa::internal {
namespace {

template <class P>
std::string reason_against(const Row<P>& row, const typename P::Problem& problem,
                           const Situation& situation) {
  if (row.dtype != problem.dtype) return std::string("takes ") + name_of(row.dtype);
  if (!row.built) {
    return FLASHATTN_WITH_CUDA
               ? "this build left its code out: no architecture that it was built for can run it"
               : "this build left its code out: it was built without CUDA";
  }
  if (row.on_device && !situation.on_device)
    return "runs on a CUDA device, but the tensors are in host memory";
  if (!row.on_device && situation.on_device) return "runs on the host, but the tensors are in device memory";
  if (row.on_device && !runs_on(row.architectures, situation.device.major, situation.device.minor)) {
    return std::string("was built for ") + row.architectures + ", but device " +
           std::to_string(situation.device.ordinal) + " (" + situation.device.name +
           ") has compute capability " + std::to_string(situation.device.major) + "." +
           std::to_string(situation.device.minor);
  }
  return row.reject(problem, situation.device);
}

template <class P>
const Row<P>* named(const char* name) {
  for (const Row<P>& row : rows<P>()) {
    if (std::strcmp(row.name, name) == 0) return &row;
  }
  return nullptr;
}

// Takes the row if nothing speaks against it.
template <class P>
bool take(const Row<P>& row, const typename P::Problem& problem, const Situation& situation,
          Choice<P>& choice) {
  std::string reason = reason_against(row, problem, situation);
  if (reason.empty()) {
    choice.row = &row;
    return true;
  }
  choice.rejected.push_back({&row, std::move(reason)});
  return false;
}

template <class P>
Choice<P> choose_best(const typename P::Problem& problem, const Situation& situation) {
  Choice<P> choice;
  for (const int index : auto_order<P>()) {
    const Row<P>& row = rows<P>()[static_cast<size_t>(index)];
    if (row.dtype != problem.dtype) continue;
    if (!take(row, problem, situation, choice)) continue;
    const size_t bytes = row.workspace(problem, situation.device, situation.threads);
    if (!row.on_device || bytes <= P::kAutoWorkspaceLimit) break;
    choice.row = nullptr;
    choice.rejected.push_back({&row, "needs " + std::to_string(bytes) + " bytes of workspace, more than " +
                                         std::to_string(P::kAutoWorkspaceLimit) + ": only when named"});
  }
  return choice;
}

}  // namespace

template <class P>
Choice<P> choose(const typename P::Problem& problem, Version version, const Situation& situation) {
  if (version == Version::Auto) return choose_best<P>(problem, situation);
  if (std::strcmp(name_of(version), "unknown version") == 0) {
    throw InvalidArgument("version = " + std::to_string(static_cast<int>(version)) + " is not a version");
  }
  for (const Row<P>& row : rows<P>()) {
    if (row.version != version || row.dtype != problem.dtype) continue;
    Choice<P> choice;
    const Row<P>* candidate = &row;  // or its stand-in, or that one's
    while (!take(*candidate, problem, situation, choice)) {
      if (candidate->stand_in == nullptr) return choice;
      candidate = named<P>(candidate->stand_in);
    }
    if (candidate != &row) choice.stood_in_for = &row;
    return choice;
  }
  Choice<P> none;
  none.absence = std::string(name_of(version)) + (P::kPass == Pass::backward ? " backward" : "") +
                 " does not exist for " + name_of(problem.dtype);
  return none;
}

template Choice<Forward> choose<Forward>(const ForwardProblem&, Version, const Situation&);
template Choice<Backward> choose<Backward>(const BackwardProblem&, Version, const Situation&);

}  // namespace fa::internal
