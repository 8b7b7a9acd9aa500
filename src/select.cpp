#include "src/select.hpp"

#include <cstring>

#include <flashattn/error.hpp>

#include "src/architectures.hpp"

namespace fa::internal {
namespace {

std::string reason_against(const ForwardRow& row, const ForwardProblem& problem, const Situation& situation) {
  if (row.dtype != problem.dtype) return std::string("takes ") + name_of(row.dtype);
  if (!row.built) return "this build left its code out";
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

const ForwardRow* named(const char* name) {
  for (const ForwardRow& row : forward_rows()) {
    if (std::strcmp(row.name, name) == 0) return &row;
  }
  return nullptr;
}

// Takes the row if nothing speaks against it.
bool take(const ForwardRow& row, const ForwardProblem& problem, const Situation& situation, Choice& choice) {
  std::string reason = reason_against(row, problem, situation);
  if (reason.empty()) {
    choice.row = &row;
    return true;
  }
  choice.rejected.push_back({&row, std::move(reason)});
  return false;
}

Choice choose_best(const ForwardProblem& problem, const Situation& situation) {
  Choice choice;
  for (const int index : forward_auto_order()) {
    const ForwardRow& row = forward_rows()[static_cast<size_t>(index)];
    if (row.dtype != problem.dtype) continue;
    if (!take(row, problem, situation, choice)) continue;
    const size_t bytes = row.workspace(problem, situation.device, situation.threads);
    if (!row.on_device || bytes <= kAutoWorkspaceLimit) break;
    choice.row = nullptr;
    choice.rejected.push_back({&row, "needs " + std::to_string(bytes) + " bytes of workspace, more than " +
                                         std::to_string(kAutoWorkspaceLimit) + ": only when named"});
  }
  return choice;
}

}  // namespace

Choice choose(const ForwardProblem& problem, Version version, const Situation& situation) {
  if (version == Version::Auto) return choose_best(problem, situation);
  if (std::strcmp(name_of(version), "unknown version") == 0) {
    throw InvalidArgument("version = " + std::to_string(static_cast<int>(version)) + " is not a version");
  }
  for (const ForwardRow& row : forward_rows()) {
    if (row.version != version || row.dtype != problem.dtype) continue;
    Choice choice;
    if (take(row, problem, situation, choice) || row.stand_in == nullptr) return choice;
    const ForwardRow* stand_in = named(row.stand_in);
    if (stand_in != nullptr && take(*stand_in, problem, situation, choice)) choice.stood_in_for = &row;
    return choice;
  }
  Choice none;
  none.absence = std::string(name_of(version)) + " does not exist for " + name_of(problem.dtype);
  return none;
}

}  // namespace fa::internal
