#include "src/validate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include <flashattn/error.hpp>

namespace fa::internal {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxLength = int64_t{1} << 30;     // M and N: sums of two still fit 32 bits
constexpr int64_t kMaxSpanBytes = int64_t{1} << 60;  // of one tensor: sums of several still fit 64 bits
constexpr size_t kWorkspaceAlignment = 256;

[[noreturn]] void refuse(const std::string& text) {
  throw InvalidArgument(text);
}

std::string text(int64_t x) {
  return std::to_string(x);
}

std::string text(const void* p) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%p", p);
  return buffer;
}

Dtype known_dtype(const char* name, const fa_tensor& t) {
  switch (t.dtype) {
    case FA_FLOAT32:
    case FA_FLOAT16:
    case FA_BFLOAT16:
      return static_cast<Dtype>(t.dtype);
    case FA_DTYPE_NONE:
      refuse(std::string(name) + ".dtype is not set");
    default:
      refuse(std::string(name) + ".dtype = " + text(t.dtype) + " is not an element type");
  }
}

std::string size_name(const char* name, int dim) {
  return std::string(name) + ".size[" + text(dim) + "]";
}

void check_size(const char* name, const fa_tensor& t) {
  for (int dim = 0; dim < 4; ++dim) {
    const int64_t size = t.size[dim];
    const int64_t most = dim == 2 ? kMaxLength : kMaxSize;
    if (size < 0) refuse(size_name(name, dim) + " = " + text(size) + " must not be negative");
    if (size > most) refuse(size_name(name, dim) + " = " + text(size) + " must be at most " + text(most));
  }
  if (t.size[1] == 0) refuse(std::string(name) + " heads = 0 must be at least 1");
  if (t.size[3] == 0) refuse(std::string(name) + " head dimension = 0 must be at least 1");
}

void check_equal(const char* name, const fa_tensor& t, int dim, const char* other_name,
                 const fa_tensor& other) {
  if (t.size[dim] == other.size[dim]) return;
  refuse(size_name(name, dim) + " = " + text(t.size[dim]) + " must equal " + size_name(other_name, dim) +
         " = " + text(other.size[dim]));
}

bool has_elements(const fa_tensor& t) {
  return t.size[0] > 0 && t.size[2] > 0;
}

std::string stride_text(const char* name, const fa_tensor& t, int dim) {
  return std::string(name) + ".stride[" + text(dim) + "] = " + text(t.stride[dim]);
}

// Strides, the span in bytes, the pointer and its alignment. Texts are made only for what is refused: the
// checks are part of every call.
void check_memory(const char* name, const fa_tensor& t) {
  const int64_t element = static_cast<int64_t>(size_of(static_cast<Dtype>(t.dtype)));
  if (t.reserved != 0) refuse(std::string(name) + ".reserved = " + text(t.reserved) + " must be 0");
  for (int dim = 0; dim < 4; ++dim) {
    if (t.stride[dim] < 0) refuse(stride_text(name, t, dim) + " must not be negative");
  }
  if (t.stride[3] != 1) refuse(stride_text(name, t, 3) + " must be 1: the last dimension is contiguous");
  if (!has_elements(t)) return;

  int64_t room = kMaxSpanBytes / element - t.size[3];
  for (int dim = 0; dim < 3; ++dim) {
    const int64_t steps = t.size[dim] - 1;
    if (steps > 0 && t.stride[dim] > room / steps) {
      refuse(std::string(name) + " spans more than 2^60 bytes (stride[" + text(dim) +
             "] = " + text(t.stride[dim]) + " over size " + text(t.size[dim]) + ")");
    }
    room -= steps * t.stride[dim];
  }
  if (t.data == nullptr) {
    refuse(std::string(name) + ".data is null but " + name + " has elements (" + text(t.size[0]) + " x " +
           text(t.size[1]) + " x " + text(t.size[2]) + " x " + text(t.size[3]) + ")");
  }
  if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(element) != 0) {
    refuse(std::string(name) + ".data = " + text(t.data) + " must be aligned to its element, " +
           text(element) + " bytes");
  }
}

Footprint footprint(const fa_tensor& t) {
  const int64_t element = static_cast<int64_t>(size_of(static_cast<Dtype>(t.dtype)));
  Footprint f{reinterpret_cast<uintptr_t>(t.data), t.size[3] * element, {0, 0, 0}, {0, 0, 0}};
  for (int dim = 0; dim < 3; ++dim) {
    f.count[dim] = t.size[dim];
    // A single index takes no step, whatever the stride says.
    f.stride_bytes[dim] = t.size[dim] > 1 ? t.stride[dim] * element : 0;
  }
  return f;
}

Footprint footprint(const void* data, int64_t bytes) {
  return {reinterpret_cast<uintptr_t>(data), bytes, {0, 0, 0}, {1, 1, 1}};
}

[[noreturn]] void refuse_sharing(Sharing sharing, const std::string& what) {
  refuse(sharing == Sharing::some ? what : what + ", as far as can be decided for such interleaved strides");
}

struct NamedBytes {
  const char* name;
  Footprint bytes;
  bool is_output;
};

// Outputs come first, since each is held against all that follow it.
void check_sharing(std::span<const NamedBytes> all) {
  for (const NamedBytes& a : all) {
    const Sharing within = a.is_output ? shared_within(a.bytes) : Sharing::none;
    if (within != Sharing::none) {
      refuse_sharing(within, std::string(a.name) +
                                 " shares an element with itself: its strides make two indices one address");
    }
  }
  for (const NamedBytes& a : all) {
    for (const NamedBytes& b : all) {
      if (!a.is_output || &a >= &b) continue;
      const Sharing sharing = shared(a.bytes, b.bytes);
      if (sharing != Sharing::none)
        refuse_sharing(sharing, std::string(a.name) + " shares memory with " + b.name);
    }
  }
}

// Of q, and of lse.
int64_t row_count(const fa_tensor& q) {
  return q.size[0] * q.size[1] * q.size[2];
}

Footprint lse_footprint(const float* lse, const fa_tensor& q) {
  return footprint(lse, lse == nullptr ? 0 : row_count(q) * int64_t{sizeof(float)});
}

template <class Args>
Footprint workspace_footprint(const Args& args) {
  return footprint(args.workspace, static_cast<int64_t>(args.workspace_size));
}

void check_sharing(const fa_forward_args& args) {
  const NamedBytes all[] = {
      {"out", footprint(args.out), true},
      {"lse", lse_footprint(args.lse, args.q), true},
      {"workspace", workspace_footprint(args), true},
      {"q", footprint(args.q), false},
      {"k", footprint(args.k), false},
      {"v", footprint(args.v), false},
  };
  check_sharing(all);
}

void check_sharing(const fa_backward_args& args) {
  const NamedBytes all[] = {
      {"dq", footprint(args.dq), true},      {"dk", footprint(args.dk), true},
      {"dv", footprint(args.dv), true},      {"workspace", workspace_footprint(args), true},
      {"q", footprint(args.q), false},       {"k", footprint(args.k), false},
      {"v", footprint(args.v), false},       {"out", footprint(args.out), false},
      {"dout", footprint(args.dout), false}, {"lse", lse_footprint(args.lse, args.q), false},
  };
  check_sharing(all);
}

template <class Args>
void check_workspace(const Args& args) {
  if (args.workspace == nullptr) {
    if (args.workspace_size != 0) {
      refuse("workspace is null but workspace_size = " + std::to_string(args.workspace_size));
    }
    return;
  }
  if (args.workspace_size > static_cast<size_t>(kMaxSpanBytes)) {
    refuse("workspace_size = " + std::to_string(args.workspace_size) + " must be at most 2^60");
  }
  if (reinterpret_cast<uintptr_t>(args.workspace) % kWorkspaceAlignment != 0) {
    refuse("workspace = " + text(args.workspace) + " must be aligned to 256 bytes");
  }
}

void check_mask(const fa_mask& mask) {
  if (mask.left < -1) refuse("mask.left = " + text(mask.left) + " must be -1 (unbounded) or not negative");
  if (mask.right < -1) refuse("mask.right = " + text(mask.right) + " must be -1 (unbounded) or not negative");
  if (mask.alignment != FA_BOTTOM_RIGHT && mask.alignment != FA_TOP_LEFT) {
    refuse("mask.alignment = " + text(mask.alignment) + " must be FA_BOTTOM_RIGHT (0) or FA_TOP_LEFT (1)");
  }
  if (mask.reserved != 0) refuse("mask.reserved = " + text(mask.reserved) + " must be 0");
}

// Row i sees keys in [i + lo, i + hi]; both clamped to [-M, N], where they bound nothing or hide everything.
template <class Problem>
void set_window(const fa_mask& mask, Problem& problem) {
  const int64_t shift = mask.alignment == FA_BOTTOM_RIGHT ? problem.N - problem.M : 0;
  const int64_t far = 2 * kMaxLength;  // beyond any distance between a query and a key
  const int64_t lo = mask.left < 0 ? -problem.M : shift - std::min(mask.left, far);
  const int64_t hi = mask.right < 0 ? problem.N : shift + std::min(mask.right, far);
  problem.window_lo = std::clamp(lo, -problem.M, problem.N);
  problem.window_hi = std::clamp(hi, -problem.M, problem.N);
}

// That of a dimension of a single index is never taken: 0, whatever was given.
Strides strides(const fa_tensor& t) {
  const auto taken = [&t](int dim) { return t.size[dim] > 1 ? t.stride[dim] : 0; };
  return {taken(0), taken(1), taken(2)};
}

// The largest power of two, up to 16, at whose multiples every row starts.
int row_alignment(const fa_tensor& t) {
  if (!has_elements(t)) return 16;
  const Strides taken = strides(t);
  const uint64_t width = size_of(static_cast<Dtype>(t.dtype));
  const uint64_t bits = 16 | reinterpret_cast<uintptr_t>(t.data) |
                        static_cast<uint64_t>(taken.batch | taken.head | taken.seq) * width;
  return static_cast<int>(bits & (~bits + 1));
}

// ---- the struct ------------------------------------------------------------------------------------

// What differs between the args structs.
template <class Args>
struct ArgsOf;

template <>
struct ArgsOf<fa_forward_args> {
  static constexpr const char* kName = "fa_forward_args";
  // Ends of the fields that a caller's header may know: everything up to `out` is the least.
  static constexpr size_t kEnds[] = {
      offsetof(fa_forward_args, lse),       offsetof(fa_forward_args, mask),
      offsetof(fa_forward_args, scale),     offsetof(fa_forward_args, threads),
      offsetof(fa_forward_args, workspace), offsetof(fa_forward_args, workspace_size),
  };
  static std::array<fa_tensor*, 4> tensors(fa_forward_args& args) {
    return {&args.q, &args.k, &args.v, &args.out};
  }
};

template <>
struct ArgsOf<fa_backward_args> {
  static constexpr const char* kName = "fa_backward_args";
  // Everything up to `lse` is the least.
  static constexpr size_t kEnds[] = {
      offsetof(fa_backward_args, mask),      offsetof(fa_backward_args, scale),
      offsetof(fa_backward_args, threads),   offsetof(fa_backward_args, deterministic),
      offsetof(fa_backward_args, workspace), offsetof(fa_backward_args, workspace_size),
  };
  static std::array<fa_tensor*, 8> tensors(fa_backward_args& args) {
    return {&args.q, &args.k, &args.v, &args.out, &args.dout, &args.dq, &args.dk, &args.dv};
  }
};

template <class Args>
Args complete_args(const Args* args) {
  if (args == nullptr) refuse("args is null");
  const size_t size = args->size;
  require_known_size<Args>(size);
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(args);
  for (size_t i = sizeof(Args); i < size; ++i) {
    if (bytes[i] != 0) {
      throw Unsupported("args.size = " + std::to_string(size) + " is larger than this library's " +
                        std::to_string(sizeof(Args)) +
                        " and a field beyond it is set: the program was built with a newer header");
    }
  }
  Args full = default_args<Args>();
  std::memcpy(&full, args, std::min(size, sizeof full));
  full.size = sizeof full;
  return full;
}

// ---- rules of both passes --------------------------------------------------------------------------

void check_dtype(const char* name, const fa_tensor& t, const char* other_name, const fa_tensor& other) {
  const Dtype dtype = known_dtype(name, t);
  if (t.dtype == other.dtype) return;
  refuse(std::string(name) + ".dtype = " + name_of(dtype) + " must equal " + other_name +
         ".dtype = " + name_of(static_cast<Dtype>(other.dtype)));
}

// The same four sizes.
void check_same_sizes(const char* name, const fa_tensor& t, const char* other_name, const fa_tensor& other) {
  for (int dim = 0; dim < 4; ++dim) check_equal(name, t, dim, other_name, other);
}

// q, k, v and out: each checked on its own before.
template <class Args>
void check_shapes(const Args& args) {
  check_equal("k", args.k, 0, "q", args.q);
  check_equal("k", args.k, 3, "q", args.q);
  for (int dim = 0; dim < 3; ++dim) check_equal("v", args.v, dim, "k", args.k);
  for (int dim = 0; dim < 3; ++dim) check_equal("out", args.out, dim, "q", args.q);
  check_equal("out", args.out, 3, "v", args.v);
  const int64_t H = args.q.size[1];
  const int64_t Hk = args.k.size[1];
  if (H % Hk != 0) refuse("k heads = " + text(Hk) + " must divide q heads = " + text(H));
  if (args.q.size[0] > 0 && H * args.q.size[2] > kMaxSpanBytes / 4 / args.q.size[0]) {
    refuse("q has more than 2^58 rows");
  }
}

void check_lse_alignment(const float* lse) {
  if (reinterpret_cast<uintptr_t>(lse) % sizeof(float) != 0) {
    refuse("lse = " + text(lse) + " must be aligned to its element, 4 bytes");
  }
}

// What is no tensor: mask, scale, threads, workspace.
template <class Args>
void check_options(const Args& args) {
  check_mask(args.mask);
  if (args.scale_is_set != 0 && args.scale_is_set != 1) {
    refuse("scale_is_set = " + text(args.scale_is_set) + " must be 0 or 1");
  }
  if (args.scale_is_set != 0 && !std::isfinite(args.scale)) {
    refuse("scale = " + std::to_string(args.scale) + " must be finite");
  }
  if (args.threads < 0) refuse("threads = " + text(args.threads) + " must not be negative");
  check_workspace(args);
}

// What both problems hold.
template <class Problem, class Args>
Problem problem_of(const Args& args) {
  Problem problem{};
  problem.dtype = static_cast<Dtype>(args.q.dtype);
  problem.B = args.q.size[0];
  problem.H = args.q.size[1];
  problem.Hk = args.k.size[1];
  problem.M = args.q.size[2];
  problem.N = args.k.size[2];
  problem.D = args.q.size[3];
  problem.Dv = args.v.size[3];
  problem.q = strides(args.q);
  problem.k = strides(args.k);
  problem.v = strides(args.v);
  problem.out = strides(args.out);
  set_window(args.mask, problem);
  problem.scale = args.scale_is_set != 0
                      ? args.scale
                      : static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.D)));
  return problem;
}

// ---- sides -----------------------------------------------------------------------------------------

struct NamedPointer {
  const char* name;
  const void* data;  // null: without elements
};

NamedPointer pointer_of(const char* name, const fa_tensor& t) {
  return {name, has_elements(t) ? t.data : nullptr};
}

Side common_side(std::span<const NamedPointer> all, Version version) {
  const auto is_host = [version](const MemoryFacts& facts) {
    return facts.kind == MemoryKind::host || (facts.kind == MemoryKind::pinned && version == Version::CPU);
  };
  Side side;
  bool found = false;
  for (const NamedPointer& t : all) {
    if (t.data == nullptr) continue;
    const MemoryFacts facts = memory_facts(t.data);
    if (!found) {
      found = true;
      side = {!is_host(facts), is_host(facts) ? -1 : facts.device, t.name, facts};
      continue;
    }
    const bool other_side = is_host(facts) == side.on_device;
    const bool both_pinned_to_a_device =
        facts.kind != MemoryKind::pinned && side.facts.kind != MemoryKind::pinned;
    if (other_side || (side.on_device && both_pinned_to_a_device && facts.device != side.device)) {
      refuse(std::string(side.witness) + " is in " + describe(side.facts) + " but " + t.name + " is in " +
             describe(facts) + ": all of them must be on one side");
    }
    if (side.on_device && side.facts.kind == MemoryKind::pinned && facts.kind != MemoryKind::pinned) {
      side = {true, facts.device, t.name, facts};
    }
  }
  return side;
}

}  // namespace

template <class Args>
void require_known_size(size_t size) {
  constexpr size_t kLargest = 64 * 1024;  // beyond, it is no newer struct but an uninitialised size
  const auto& ends = ArgsOf<Args>::kEnds;
  const bool shorter = std::find(std::begin(ends), std::end(ends), size) != std::end(ends);
  if (shorter || (size >= sizeof(Args) && size <= kLargest)) return;
  const std::string name = ArgsOf<Args>::kName;
  refuse("args.size = " + std::to_string(size) + " is not a size that " + name + " ever had (it is " +
         std::to_string(sizeof(Args)) + "): set it with " + name + "_init");
}
template void require_known_size<fa_forward_args>(size_t);
template void require_known_size<fa_backward_args>(size_t);

template <class Args>
Args default_args() {
  Args args;
  std::memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.mask.left = args.mask.right = -1;
  for (fa_tensor* t : ArgsOf<Args>::tensors(args)) t->stride[3] = 1;
  return args;
}
template fa_forward_args default_args<fa_forward_args>();
template fa_backward_args default_args<fa_backward_args>();

fa_forward_args complete(const fa_forward_args* args) {
  return complete_args(args);
}

fa_backward_args complete(const fa_backward_args* args) {
  return complete_args(args);
}

ForwardProblem validate(const fa_forward_args& args) {
  known_dtype("q", args.q);
  check_dtype("k", args.k, "q", args.q);
  check_dtype("v", args.v, "q", args.q);
  const Dtype dtype_out = known_dtype("out", args.out);

  check_size("q", args.q);
  check_size("k", args.k);
  check_size("v", args.v);
  check_size("out", args.out);
  check_shapes(args);

  check_memory("q", args.q);
  check_memory("k", args.k);
  check_memory("v", args.v);
  check_memory("out", args.out);
  check_lse_alignment(args.lse);
  check_options(args);
  if (args.reserved != 0) refuse("args.reserved = " + text(args.reserved) + " must be 0");
  check_sharing(args);

  ForwardProblem problem = problem_of<ForwardProblem>(args);
  problem.dtype_out = dtype_out;
  problem.q_alignment = row_alignment(args.q);
  problem.k_alignment = row_alignment(args.k);
  problem.v_alignment = row_alignment(args.v);
  problem.out_alignment = row_alignment(args.out);
  return problem;
}

BackwardProblem validate(const fa_backward_args& args) {
  known_dtype("q", args.q);
  check_dtype("k", args.k, "q", args.q);
  check_dtype("v", args.v, "q", args.q);
  check_dtype("out", args.out, "q", args.q);
  check_dtype("dout", args.dout, "q", args.q);
  const Dtype dtype_gradient = known_dtype("dq", args.dq);
  check_dtype("dk", args.dk, "dq", args.dq);
  check_dtype("dv", args.dv, "dq", args.dq);

  struct NamedTensor {
    const char* name;
    const fa_tensor* tensor;
  };
  const NamedTensor all[] = {{"q", &args.q},       {"k", &args.k},   {"v", &args.v},   {"out", &args.out},
                             {"dout", &args.dout}, {"dq", &args.dq}, {"dk", &args.dk}, {"dv", &args.dv}};
  for (const auto& [name, tensor] : all) check_size(name, *tensor);
  check_shapes(args);
  check_same_sizes("dout", args.dout, "out", args.out);
  check_same_sizes("dq", args.dq, "q", args.q);
  check_same_sizes("dk", args.dk, "k", args.k);
  check_same_sizes("dv", args.dv, "v", args.v);

  for (const auto& [name, tensor] : all) check_memory(name, *tensor);
  if (args.lse == nullptr && has_elements(args.q)) {
    refuse("lse is null but q has " + text(row_count(args.q)) + " rows: backward needs what forward wrote");
  }
  check_lse_alignment(args.lse);
  check_options(args);
  if (args.deterministic != 0 && args.deterministic != 1) {
    refuse("deterministic = " + text(args.deterministic) + " must be 0 or 1");
  }
  check_sharing(args);

  BackwardProblem problem = problem_of<BackwardProblem>(args);
  problem.dtype_gradient = dtype_gradient;
  problem.dout = strides(args.dout);
  problem.dq = strides(args.dq);
  problem.dk = strides(args.dk);
  problem.dv = strides(args.dv);
  problem.deterministic = args.deterministic != 0;
  return problem;
}

Side find_side(const fa_forward_args& args, Version version) {
  const NamedPointer all[] = {
      pointer_of("out", args.out),
      pointer_of("q", args.q),
      pointer_of("k", args.k),
      pointer_of("v", args.v),
      {"lse", has_elements(args.out) ? args.lse : nullptr},
      {"workspace", args.workspace},
  };
  return common_side(all, version);
}

Side find_side(const fa_backward_args& args, Version version) {
  const NamedPointer all[] = {
      pointer_of("dq", args.dq),
      pointer_of("dk", args.dk),
      pointer_of("dv", args.dv),
      pointer_of("q", args.q),
      pointer_of("k", args.k),
      pointer_of("v", args.v),
      pointer_of("out", args.out),
      pointer_of("dout", args.dout),
      {"lse", has_elements(args.q) ? args.lse : nullptr},
      {"workspace", args.workspace},
  };
  return common_side(all, version);
}

}  // namespace fa::internal
