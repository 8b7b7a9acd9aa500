// The C boundary: no exception and no C++ type crosses it.

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include <flashattn/error.hpp>

#include "flashattn_build.hpp"
#include "src/cpu/forward.hpp"
#include "src/device.hpp"
#include "src/environment.hpp"
#include "src/kernel_table.hpp"
#include "src/params.hpp"
#include "src/select.hpp"
#include "src/validate.hpp"

namespace fa::internal {
namespace {

// Without a destructor, so that calls made while a thread or the process ends can still fail.
constexpr size_t kErrorBytes = 4096;
thread_local char last_error[kErrorBytes];

fa_status fail(fa_status status, const char* text) noexcept {
  const size_t length = std::min(std::strlen(text), kErrorBytes - 1);
  std::memcpy(last_error, text, length);
  last_error[length] = '\0';
  return status;
}

// Runs `body` and turns what it throws into a status.
template <class Body>
fa_status guarded(Body body) noexcept {
  try {
    body();
    return FA_OK;
  } catch (const Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(FA_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(FA_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(FA_INTERNAL_ERROR, "unknown exception");
  }
}

// How many threads a host row may use.
int resolve_threads(int asked) {
  if (asked > 0) return asked;
  const std::optional<int> threads = environment_number("FLASHATTN_NUM_THREADS", 65536);
  return threads.value_or(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

// A call, after validation and choice.
struct Plan {
  fa_forward_args args{};
  ForwardProblem problem{};
  Side side;
  const DeviceProperties* device = nullptr;
  int threads = 0;  // of a host row; 0 on the device
  Choice choice;

  bool has_rows() const { return problem.B > 0 && problem.M > 0; }
  size_t workspace_size() const { return choice.row->workspace(problem, *device, threads); }
};

Plan make_plan(const fa_forward_args* given, Version version) {
  Plan plan;
  plan.args = complete(given);
  plan.problem = validate(plan.args);
  plan.side = find_side(plan.args, version);
  plan.device = plan.side.on_device ? &device_properties(plan.side.device) : &no_device();
  plan.threads = plan.side.on_device ? 0 : resolve_threads(plan.args.threads);
  plan.choice = choose(plan.problem, version, {plan.side.on_device, *plan.device, plan.threads});
  return plan;
}

std::string row_title(const ForwardRow& row) {
  return std::string(name_of(row.version)) + " (" + row.name + ")";
}

std::string rejections(const Choice& choice, const char* indent) {
  std::string text;
  for (const Rejection& rejection : choice.rejected) {
    text += indent + row_title(*rejection.row) + ": " + rejection.reason + "\n";
  }
  return text;
}

void require_row(const Plan& plan, Version version) {
  if (!plan.choice.absence.empty()) throw Unsupported(plan.choice.absence);
  if (plan.choice.row != nullptr || !plan.has_rows()) return;
  if (version != Version::Auto && plan.choice.rejected.size() == 1) {
    const Rejection& only = plan.choice.rejected.front();
    throw Unsupported(row_title(*only.row) + ": " + only.reason);
  }
  std::string text = std::string("no kernel takes this problem (") + name_of(plan.problem.dtype) + "):\n" +
                     rejections(plan.choice, "  ");
  text.pop_back();
  throw Unsupported(text);
}

void require_workspace(const Plan& plan) {
  if (plan.args.workspace == nullptr) return;
  const size_t needed = plan.workspace_size();
  if (plan.args.workspace_size >= needed) return;
  throw InvalidArgument("workspace_size = " + std::to_string(plan.args.workspace_size) +
                        " is less than the " + std::to_string(needed) + " bytes that " +
                        row_title(*plan.choice.row) + " needs");
}

struct AlignedDelete {
  void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{256}); }
};

void run_on_host(const Plan& plan, ForwardParams params) {
  std::unique_ptr<void, AlignedDelete> own;
  params.workspace_size = plan.workspace_size();
  params.workspace = plan.args.workspace;
  if (params.workspace == nullptr && params.workspace_size > 0) {
    own.reset(::operator new (params.workspace_size, std::align_val_t{256}));
    params.workspace = own.get();
  }
  plan.choice.row->launch(params, {plan.device, nullptr, plan.threads}, plan.problem.dtype,
                          plan.problem.dtype_out);
}

void run_on_device(const Plan& plan, ForwardParams params, struct ::CUstream_st* stream) {
  const CurrentDevice current(plan.side.device);
  params.workspace_size = plan.workspace_size();
  params.workspace = plan.args.workspace;
  const bool own = params.workspace == nullptr && params.workspace_size > 0;
  if (own) params.workspace = allocate(params.workspace_size, plan.side.device, stream);
  const int code =
      plan.choice.row->launch(params, {plan.device, stream, 0}, plan.problem.dtype, plan.problem.dtype_out);
  if (own) release(params.workspace, stream);
  check_cuda(code, plan.choice.row->name);
}

void forward(const fa_forward_args* given, Version version, struct ::CUstream_st* stream) {
  const ErrorStateGuard errors;
  const Plan plan = make_plan(given, version);
  require_row(plan, version);
  if (!plan.has_rows()) return;
  require_workspace(plan);
  if (!plan.side.on_device && stream != nullptr) {
    throw InvalidArgument("stream must be null: the tensors are in host memory, where a call is synchronous");
  }
  const ForwardParams params = make_params(plan.problem, plan.args);
  if (plan.side.on_device) {
    run_on_device(plan, params, stream);
  } else {
    run_on_host(plan, params);
  }
}

std::string describe_mask(const fa_mask& mask) {
  const std::string corner = mask.alignment == FA_TOP_LEFT ? " top-left" : "";
  if (mask.left < 0 && mask.right < 0) return "full";
  if (mask.left < 0 && mask.right == 0) return "causal" + corner;
  return "window(" + std::to_string(mask.left) + ", " + std::to_string(mask.right) + ")" + corner;
}

std::string describe_problem(const Plan& plan) {
  const ForwardProblem& p = plan.problem;
  std::string text = std::string(name_of(p.dtype)) + " B" + std::to_string(p.B) + " H" + std::to_string(p.H) +
                     "/" + std::to_string(p.Hk) + " M" + std::to_string(p.M) + " N" + std::to_string(p.N) +
                     " D" + std::to_string(p.D);
  if (p.Dv != p.D) text += "/" + std::to_string(p.Dv);
  text += " " + describe_mask(plan.args.mask);
  if (p.dtype_out != p.dtype) text += std::string(", out ") + name_of(p.dtype_out);
  return text + ", in " + describe(plan.side.facts);
}

std::string explanation(const Plan& plan) {
  std::string text = describe_problem(plan) + "\n";
  if (!plan.choice.absence.empty()) return text + "nothing runs: " + plan.choice.absence + "\n";
  if (!plan.has_rows()) return text + "nothing to do: out has no elements\n";
  if (plan.choice.row == nullptr) {
    text += "nothing runs\n";
  } else {
    text += "runs: " + row_title(*plan.choice.row);
    if (plan.choice.stood_in_for != nullptr) text += " in place of " + row_title(*plan.choice.stood_in_for);
    if (!plan.side.on_device) text += ", at most " + std::to_string(plan.threads) + " threads";
    text += ", workspace " + std::to_string(plan.workspace_size()) + " bytes\n";
  }
  if (!plan.choice.rejected.empty()) text += "passed over:\n" + rejections(plan.choice, "  ");
  return text;
}

// Copies `full` into a struct of the size that the caller knows.
template <class Info>
void give(Info full, Info* info, const char* name) {
  if (info == nullptr) throw InvalidArgument(std::string(name) + " is null");
  const size_t size = info->size;
  if (size < sizeof(size_t)) {
    throw InvalidArgument(std::string(name) + ".size = " + std::to_string(size) + " must be sizeof(*" + name +
                          ")");
  }
  full.size = size;
  std::memcpy(info, &full, std::min(size, sizeof full));
}

fa_kernel_info info_of(const ForwardRow& row) {
  return {.size = 0,
          .pass = FA_PASS_FORWARD,
          .version = static_cast<fa_version>(row.version),
          .dtype = static_cast<fa_dtype>(row.dtype),
          .built = row.built ? 1 : 0,
          .name = row.name,
          .limits = row.limits,
          .stand_in = row.stand_in};
}

}  // namespace
}  // namespace fa::internal

using namespace fa::internal;

extern "C" {

fa_status fa_forward_args_init(fa_forward_args* args, size_t size) {
  return guarded([&] {
    if (args == nullptr) throw fa::InvalidArgument("args is null");
    require_known_size(size);
    fa_forward_args defaults = default_args();
    defaults.size = size;
    // The fields of a newer header have zero as their default.
    std::memset(args, 0, size);
    std::memcpy(args, &defaults, std::min(size, sizeof defaults));
  });
}

fa_status fa_forward(const fa_forward_args* args, fa_version version, struct CUstream_st* stream) {
  return guarded([&] { forward(args, static_cast<fa::Version>(version), stream); });
}

fa_status fa_forward_workspace_size(const fa_forward_args* args, fa_version version, size_t* bytes) {
  return guarded([&] {
    if (bytes == nullptr) throw fa::InvalidArgument("bytes is null");
    const ErrorStateGuard errors;
    const Plan plan = make_plan(args, static_cast<fa::Version>(version));
    require_row(plan, static_cast<fa::Version>(version));
    *bytes = plan.has_rows() ? plan.workspace_size() : 0;
  });
}

fa_status fa_forward_prepare(const fa_forward_args* args, fa_version version) {
  return guarded([&] {
    const ErrorStateGuard errors;
    const Plan plan = make_plan(args, static_cast<fa::Version>(version));
    require_row(plan, static_cast<fa::Version>(version));
    if (!plan.has_rows() || plan.choice.row->prepare == nullptr) return;
    const CurrentDevice current(plan.side.device);
    check_cuda(plan.choice.row->prepare(plan.problem, *plan.device), plan.choice.row->name);
    if (plan.args.workspace == nullptr && plan.workspace_size() > 0) prepare_pool(plan.side.device);
  });
}

fa_status fa_forward_explain(const fa_forward_args* args, fa_version version, fa_forward_plan* info,
                             char* text, size_t text_size, size_t* text_length) {
  return guarded([&] {
    if (text == nullptr && text_size != 0) {
      throw fa::InvalidArgument("text is null but text_size = " + std::to_string(text_size));
    }
    const ErrorStateGuard errors;
    const Plan plan = make_plan(args, static_cast<fa::Version>(version));
    const ForwardRow* row = plan.choice.row;
    if (info != nullptr) {
      give<fa_forward_plan>({.size = 0,
                             .runs = row != nullptr ? 1 : 0,
                             .version = row != nullptr ? static_cast<fa_version>(row->version) : version,
                             .placement = plan.side.on_device ? FA_ON_DEVICE : FA_ON_HOST,
                             .device = plan.side.device,
                             .threads = plan.threads,
                             .reserved = 0,
                             .workspace_size = row != nullptr ? plan.workspace_size() : 0,
                             .kernel = row != nullptr ? row->name : nullptr},
                            info, "plan");
    }
    const std::string full = explanation(plan);
    if (text_size > 0) {
      const size_t count = std::min(text_size - 1, full.size());
      std::memcpy(text, full.data(), count);
      text[count] = '\0';
    }
    if (text_length != nullptr) *text_length = full.size();
  });
}

int32_t fa_kernel_count(void) {
  return static_cast<int32_t>(forward_rows().size());
}

fa_status fa_kernel_info_get(int32_t index, fa_kernel_info* info) {
  return guarded([&] {
    if (index < 0 || index >= fa_kernel_count()) {
      throw fa::InvalidArgument("index = " + std::to_string(index) + " must be from 0 to " +
                                std::to_string(fa_kernel_count() - 1));
    }
    give(info_of(forward_rows()[static_cast<size_t>(index)]), info, "info");
  });
}

fa_status fa_build_info_get(fa_build_info* info) {
  return guarded([&] {
    give<fa_build_info>({.size = 0,
                         .version = FLASHATTN_VERSION,
                         .cuda = FLASHATTN_BUILD_CUDA,
                         .architectures = FLASHATTN_BUILD_ARCHITECTURES,
                         .simd = cpu::simd_library(),
                         .simd_target = cpu::simd_target(),
                         .compiler = FLASHATTN_BUILD_COMPILER,
                         .build_type = FLASHATTN_BUILD_TYPE},
                        info, "info");
  });
}

int32_t fa_version_number(void) {
  return FLASHATTN_VERSION;
}

#define FA_TEXT_(x) #x
#define FA_TEXT(x) FA_TEXT_(x)
const char* fa_version_string(void) {
  return FA_TEXT(FLASHATTN_VERSION_MAJOR) "." FA_TEXT(FLASHATTN_VERSION_MINOR) "." FA_TEXT(
      FLASHATTN_VERSION_PATCH);
}

const char* fa_last_error(void) {
  return last_error;
}

const char* fa_status_name(fa_status status) {
  switch (status) {
    case FA_OK:
      return "FA_OK";
    case FA_INVALID_ARGUMENT:
      return "FA_INVALID_ARGUMENT";
    case FA_UNSUPPORTED:
      return "FA_UNSUPPORTED";
    case FA_OUT_OF_MEMORY:
      return "FA_OUT_OF_MEMORY";
    case FA_CUDA_ERROR:
      return "FA_CUDA_ERROR";
    case FA_INTERNAL_ERROR:
      return "FA_INTERNAL_ERROR";
    default:
      return "unknown fa_status";
  }
}

}  // extern "C"
