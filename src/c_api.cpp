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

// A call of one pass, Forward or Backward, after validation and choice.
template <class P>
struct Plan {
  typename P::Args args{};
  typename P::Problem problem{};
  Side side;
  const DeviceProperties* device = nullptr;
  int threads = 0;  // of a host row; 0 on the device
  Choice<P> choice;

  bool has_work() const { return P::has_work(problem); }
  size_t workspace_size() const { return choice.row->workspace(problem, *device, threads); }
};

template <class P>
Plan<P> make_plan(const typename P::Args* given, Version version) {
  Plan<P> plan;
  plan.args = complete(given);
  plan.problem = validate(plan.args);
  plan.side = find_side(plan.args, version);
  plan.device = plan.side.on_device ? &device_properties(plan.side.device) : &no_device();
  plan.threads = plan.side.on_device ? 0 : resolve_threads(plan.args.threads);
  plan.choice = choose<P>(plan.problem, version, {plan.side.on_device, *plan.device, plan.threads});
  return plan;
}

template <class P>
std::string row_title(const Row<P>& row) {
  return std::string(name_of(row.version)) + " (" + row.name + ")";
}

template <class P>
std::string rejections(const Choice<P>& choice, const char* indent) {
  std::string text;
  for (const Rejection<P>& rejection : choice.rejected) {
    text += indent + row_title(*rejection.row) + ": " + rejection.reason + "\n";
  }
  return text;
}

template <class P>
void require_row(const Plan<P>& plan, Version version) {
  if (!plan.choice.absence.empty()) throw Unsupported(plan.choice.absence);
  if (plan.choice.row != nullptr || !plan.has_work()) return;
  if (version != Version::Auto && plan.choice.rejected.size() == 1) {
    const Rejection<P>& only = plan.choice.rejected.front();
    throw Unsupported(row_title(*only.row) + ": " + only.reason);
  }
  std::string text = std::string("no kernel takes this problem (") + name_of(plan.problem.dtype) + "):\n" +
                     rejections(plan.choice, "  ");
  text.pop_back();
  throw Unsupported(text);
}

template <class P>
void require_workspace(const Plan<P>& plan) {
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

// Not every pass's kernels ask for the size.
template <class Params>
void set_workspace(Params& params, void* workspace, size_t bytes) {
  params.workspace = workspace;
  if constexpr (requires { params.workspace_size; }) params.workspace_size = bytes;
}

template <class P>
int launch(const Plan<P>& plan, const typename P::Params& params, struct ::CUstream_st* stream) {
  return plan.choice.row->launch(params, {plan.device, stream, plan.threads}, plan.problem.dtype,
                                 P::dtype_written(plan.problem));
}

template <class P>
void run_on_host(const Plan<P>& plan, typename P::Params params) {
  std::unique_ptr<void, AlignedDelete> own;
  const size_t bytes = plan.workspace_size();
  void* workspace = plan.args.workspace;
  if (workspace == nullptr && bytes > 0) {
    own.reset(::operator new (bytes, std::align_val_t{256}, std::nothrow));
    if (own == nullptr)
      throw OutOfMemory("out of host memory: workspace of " + std::to_string(bytes) + " bytes");
    workspace = own.get();
  }
  set_workspace(params, workspace, bytes);
  launch(plan, params, nullptr);
}

template <class P>
void run_on_device(const Plan<P>& plan, typename P::Params params, struct ::CUstream_st* stream) {
  const CurrentDevice current(plan.side.device);
  const size_t bytes = plan.workspace_size();
  void* workspace = plan.args.workspace;
  const bool own = workspace == nullptr && bytes > 0;
  if (own) workspace = allocate(bytes, plan.side.device, stream);
  set_workspace(params, workspace, bytes);
  const int code = launch(plan, params, stream);
  if (own) release(workspace, stream);
  check_cuda(code, plan.choice.row->name);
}

template <class P>
void run(const typename P::Args* given, Version version, struct ::CUstream_st* stream) {
  const ErrorStateGuard errors;
  const Plan<P> plan = make_plan<P>(given, version);
  require_row(plan, version);
  if (!plan.has_work()) return;
  require_workspace(plan);
  if (!plan.side.on_device && stream != nullptr) {
    throw InvalidArgument("stream must be null: the tensors are in host memory, where a call is synchronous");
  }
  const typename P::Params params = make_params(plan.problem, plan.args);
  if (plan.side.on_device) {
    run_on_device(plan, params, stream);
  } else {
    run_on_host(plan, params);
  }
}

template <class P>
void workspace_size(const typename P::Args* args, Version version, size_t* bytes) {
  if (bytes == nullptr) throw InvalidArgument("bytes is null");
  const ErrorStateGuard errors;
  const Plan<P> plan = make_plan<P>(args, version);
  require_row(plan, version);
  *bytes = plan.has_work() ? plan.workspace_size() : 0;
}

template <class P>
void prepare(const typename P::Args* args, Version version) {
  const ErrorStateGuard errors;
  const Plan<P> plan = make_plan<P>(args, version);
  require_row(plan, version);
  if (!plan.has_work() || plan.choice.row->prepare == nullptr) return;
  const CurrentDevice current(plan.side.device);
  check_cuda(plan.choice.row->prepare(plan.problem, *plan.device), plan.choice.row->name);
  if (plan.args.workspace == nullptr && plan.workspace_size() > 0) prepare_pool(plan.side.device);
}

std::string describe_mask(const fa_mask& mask) {
  const std::string corner = mask.alignment == FA_TOP_LEFT ? " top-left" : "";
  if (mask.left < 0 && mask.right < 0) return "full";
  if (mask.left < 0 && mask.right == 0) return "causal" + corner;
  return "window(" + std::to_string(mask.left) + ", " + std::to_string(mask.right) + ")" + corner;
}

template <class P>
std::string describe_problem(const Plan<P>& plan) {
  constexpr bool kBackward = P::kPass == Pass::backward;
  const auto& p = plan.problem;
  std::string text = std::string(name_of(p.dtype)) + " B" + std::to_string(p.B) + " H" + std::to_string(p.H) +
                     "/" + std::to_string(p.Hk) + " M" + std::to_string(p.M) + " N" + std::to_string(p.N) +
                     " D" + std::to_string(p.D);
  if (p.Dv != p.D) text += "/" + std::to_string(p.Dv);
  text += " " + describe_mask(plan.args.mask);
  const Dtype written = P::dtype_written(p);
  if (written != p.dtype) {
    text += std::string(kBackward ? ", gradients " : ", out ") + name_of(written);
  }
  if constexpr (kBackward) {
    text += ", backward";
    if (p.deterministic) text += ", deterministic";
  }
  return text + ", in " + describe(plan.side.facts);
}

template <class P>
std::string explanation(const Plan<P>& plan) {
  std::string text = describe_problem(plan) + "\n";
  if (!plan.choice.absence.empty()) return text + "nothing runs: " + plan.choice.absence + "\n";
  if (!plan.has_work()) {
    return text + "nothing to do: " +
           (P::kPass == Pass::backward ? "no gradient has elements\n" : "out has no elements\n");
  }
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

template <class P>
void explain(const typename P::Args* args, Version version, fa_forward_plan* info, char* text,
             size_t text_size, size_t* text_length) {
  if (text == nullptr && text_size != 0) {
    throw InvalidArgument("text is null but text_size = " + std::to_string(text_size));
  }
  const ErrorStateGuard errors;
  const Plan<P> plan = make_plan<P>(args, version);
  const Row<P>* row = plan.choice.row;
  if (info != nullptr) {
    give<fa_forward_plan>({.size = 0,
                           .runs = row != nullptr ? 1 : 0,
                           .version = static_cast<fa_version>(row != nullptr ? row->version : version),
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
}

template <class Args>
void init(Args* args, size_t size) {
  if (args == nullptr) throw InvalidArgument("args is null");
  require_known_size<Args>(size);
  Args defaults = default_args<Args>();
  defaults.size = size;
  // The fields of a newer header have zero as their default.
  std::memset(args, 0, size);
  std::memcpy(args, &defaults, std::min(size, sizeof defaults));
}

template <class P>
fa_kernel_info info_of(const Row<P>& row) {
  return {.size = 0,
          .pass = static_cast<fa_pass>(P::kPass),
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
  return guarded([&] { init(args, size); });
}

fa_status fa_forward(const fa_forward_args* args, fa_version version, struct CUstream_st* stream) {
  return guarded([&] { run<Forward>(args, static_cast<fa::Version>(version), stream); });
}

fa_status fa_forward_workspace_size(const fa_forward_args* args, fa_version version, size_t* bytes) {
  return guarded([&] { workspace_size<Forward>(args, static_cast<fa::Version>(version), bytes); });
}

fa_status fa_forward_prepare(const fa_forward_args* args, fa_version version) {
  return guarded([&] { prepare<Forward>(args, static_cast<fa::Version>(version)); });
}

fa_status fa_forward_explain(const fa_forward_args* args, fa_version version, fa_forward_plan* plan,
                             char* text, size_t text_size, size_t* text_length) {
  return guarded(
      [&] { explain<Forward>(args, static_cast<fa::Version>(version), plan, text, text_size, text_length); });
}

fa_status fa_backward_args_init(fa_backward_args* args, size_t size) {
  return guarded([&] { init(args, size); });
}

fa_status fa_backward(const fa_backward_args* args, fa_version version, struct CUstream_st* stream) {
  return guarded([&] { run<Backward>(args, static_cast<fa::Version>(version), stream); });
}

fa_status fa_backward_workspace_size(const fa_backward_args* args, fa_version version, size_t* bytes) {
  return guarded([&] { workspace_size<Backward>(args, static_cast<fa::Version>(version), bytes); });
}

fa_status fa_backward_prepare(const fa_backward_args* args, fa_version version) {
  return guarded([&] { prepare<Backward>(args, static_cast<fa::Version>(version)); });
}

fa_status fa_backward_explain(const fa_backward_args* args, fa_version version, fa_backward_plan* plan,
                              char* text, size_t text_size, size_t* text_length) {
  return guarded([&] {
    explain<Backward>(args, static_cast<fa::Version>(version), plan, text, text_size, text_length);
  });
}

int32_t fa_kernel_count(void) {
  return static_cast<int32_t>(forward_rows().size() + backward_rows().size());
}

fa_status fa_kernel_info_get(int32_t index, fa_kernel_info* info) {
  return guarded([&] {
    if (index < 0 || index >= fa_kernel_count()) {
      throw fa::InvalidArgument("index = " + std::to_string(index) + " must be from 0 to " +
                                std::to_string(fa_kernel_count() - 1));
    }
    const size_t row = static_cast<size_t>(index), forward = forward_rows().size();
    give(row < forward ? info_of(forward_rows()[row]) : info_of(backward_rows()[row - forward]), info,
         "info");
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
