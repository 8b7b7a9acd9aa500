#include "src/validate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

void check_sharing(const fa_forward_args& args) {
  struct Named {
    const char* name;
    Footprint bytes;
    bool is_output;
  };
  const int64_t rows = args.q.size[0] * args.q.size[1] * args.q.size[2];
  const Named all[] = {
      {"out", footprint(args.out), true},
      {"lse", footprint(args.lse, args.lse == nullptr ? 0 : rows * int64_t{sizeof(float)}), true},
      {"workspace", footprint(args.workspace, static_cast<int64_t>(args.workspace_size)), true},
      {"q", footprint(args.q), false},
      {"k", footprint(args.k), false},
      {"v", footprint(args.v), false},
  };
  const Sharing within = shared_within(all[0].bytes);
  if (within != Sharing::none) {
    refuse_sharing(within, "out shares an element with itself: its strides make two indices one address");
  }
  for (const Named& a : all) {
    for (const Named& b : all) {
      if (!a.is_output || &a >= &b) continue;
      const Sharing sharing = shared(a.bytes, b.bytes);
      if (sharing != Sharing::none)
        refuse_sharing(sharing, std::string(a.name) + " shares memory with " + b.name);
    }
  }
}

void check_workspace(const fa_forward_args& args) {
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
void set_window(const fa_mask& mask, ForwardProblem& problem) {
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

}  // namespace

void require_known_size(size_t size) {
  // Ends of the fields that a caller's header may know: everything up to `out` is the least.
  static constexpr size_t kEnds[] = {
      offsetof(fa_forward_args, lse),       offsetof(fa_forward_args, mask),
      offsetof(fa_forward_args, scale),     offsetof(fa_forward_args, threads),
      offsetof(fa_forward_args, workspace), offsetof(fa_forward_args, workspace_size),
  };
  constexpr size_t kLargest = 64 * 1024;  // beyond, it is no newer struct but an uninitialised size
  const bool shorter = std::find(std::begin(kEnds), std::end(kEnds), size) != std::end(kEnds);
  if (shorter || (size >= sizeof(fa_forward_args) && size <= kLargest)) return;
  refuse("args.size = " + std::to_string(size) + " is not a size that fa_forward_args ever had (it is " +
         std::to_string(sizeof(fa_forward_args)) + "): set it with fa_forward_args_init");
}

fa_forward_args default_args() {
  fa_forward_args args;
  std::memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.mask.left = args.mask.right = -1;
  for (fa_tensor* t : {&args.q, &args.k, &args.v, &args.out}) t->stride[3] = 1;
  return args;
}

fa_forward_args complete(const fa_forward_args* args) {
  if (args == nullptr) refuse("args is null");
  const size_t size = args->size;
  require_known_size(size);
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(args);
  for (size_t i = sizeof(fa_forward_args); i < size; ++i) {
    if (bytes[i] != 0) {
      throw Unsupported("args.size = " + std::to_string(size) + " is larger than this library's " +
                        std::to_string(sizeof(fa_forward_args)) +
                        " and a field beyond it is set: the program was built with a newer header");
    }
  }
  fa_forward_args full = default_args();
  std::memcpy(&full, args, std::min(size, sizeof full));
  full.size = sizeof full;
  return full;
}

ForwardProblem validate(const fa_forward_args& args) {
  const Dtype dtype = known_dtype("q", args.q);
  for (const auto& [name, t] : {std::pair<const char*, const fa_tensor*>{"k", &args.k}, {"v", &args.v}}) {
    const Dtype other = known_dtype(name, *t);
    if (other != dtype) {
      refuse(std::string(name) + ".dtype = " + name_of(other) + " must equal q.dtype = " + name_of(dtype));
    }
  }
  const Dtype dtype_out = known_dtype("out", args.out);

  check_size("q", args.q);
  check_size("k", args.k);
  check_size("v", args.v);
  check_size("out", args.out);
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

  check_memory("q", args.q);
  check_memory("k", args.k);
  check_memory("v", args.v);
  check_memory("out", args.out);
  if (reinterpret_cast<uintptr_t>(args.lse) % sizeof(float) != 0) {
    refuse("lse = " + text(args.lse) + " must be aligned to its element, 4 bytes");
  }
  check_mask(args.mask);
  if (args.scale_is_set != 0 && args.scale_is_set != 1) {
    refuse("scale_is_set = " + text(args.scale_is_set) + " must be 0 or 1");
  }
  if (args.scale_is_set != 0 && !std::isfinite(args.scale)) {
    refuse("scale = " + std::to_string(args.scale) + " must be finite");
  }
  if (args.threads < 0) refuse("threads = " + text(args.threads) + " must not be negative");
  if (args.reserved != 0) refuse("args.reserved = " + text(args.reserved) + " must be 0");
  check_workspace(args);
  check_sharing(args);

  ForwardProblem problem{};
  problem.dtype = dtype;
  problem.dtype_out = dtype_out;
  problem.B = args.q.size[0];
  problem.H = H;
  problem.Hk = Hk;
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
  problem.q_alignment = row_alignment(args.q);
  problem.k_alignment = row_alignment(args.k);
  problem.v_alignment = row_alignment(args.v);
  return problem;
}

Side find_side(const fa_forward_args& args, Version version) {
  struct Named {
    const char* name;
    const void* data;
  };
  const Named all[] = {
      {"out", has_elements(args.out) ? args.out.data : nullptr},
      {"q", has_elements(args.q) ? args.q.data : nullptr},
      {"k", has_elements(args.k) ? args.k.data : nullptr},
      {"v", has_elements(args.v) ? args.v.data : nullptr},
      {"lse", has_elements(args.out) ? args.lse : nullptr},
      {"workspace", args.workspace},
  };
  const auto is_host = [version](const MemoryFacts& facts) {
    return facts.kind == MemoryKind::host || (facts.kind == MemoryKind::pinned && version == Version::CPU);
  };
  Side side;
  bool found = false;
  for (const Named& t : all) {
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

}  // namespace fa::internal
