/// Bad input to backward: each rule has its status and its text, nothing is written, and the next call works.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::test {
namespace {

constexpr std::int64_t kB = 2, kH = 4, kHk = 2, kM = 5, kN = 6, kD = 8, kDv = 12;

// ---- the layout of the structs, as it is fixed
// --------------------------------------------------------------------

static_assert(std::is_standard_layout<fa_backward_args>::value && std::is_trivial<fa_backward_args>::value,
              "a C struct");
static_assert(sizeof(fa_tensor) == 80 && offsetof(fa_tensor, dtype) == 8 && offsetof(fa_tensor, size) == 16 &&
                  offsetof(fa_tensor, stride) == 48,
              "fa_tensor never changes");
static_assert(sizeof(fa_mask) == 24 && offsetof(fa_mask, right) == 8 && offsetof(fa_mask, alignment) == 16,
              "fa_mask never changes");
static_assert(offsetof(fa_forward_args, q) == 8 && offsetof(fa_forward_args, out) == 248 &&
                  offsetof(fa_forward_args, lse) == 328 && offsetof(fa_forward_args, mask) == 336 &&
                  offsetof(fa_forward_args, scale) == 360 && offsetof(fa_forward_args, threads) == 368 &&
                  offsetof(fa_forward_args, workspace) == 376 &&
                  offsetof(fa_forward_args, workspace_size) == 384,
              "fa_forward_args only grows");
static_assert(offsetof(fa_backward_args, q) == 8 && offsetof(fa_backward_args, k) == 88 &&
                  offsetof(fa_backward_args, v) == 168 && offsetof(fa_backward_args, out) == 248 &&
                  offsetof(fa_backward_args, dout) == 328 && offsetof(fa_backward_args, dq) == 408 &&
                  offsetof(fa_backward_args, dk) == 488 && offsetof(fa_backward_args, dv) == 568 &&
                  offsetof(fa_backward_args, lse) == 648 && offsetof(fa_backward_args, mask) == 656 &&
                  offsetof(fa_backward_args, scale) == 680 &&
                  offsetof(fa_backward_args, scale_is_set) == 684 &&
                  offsetof(fa_backward_args, threads) == 688 &&
                  offsetof(fa_backward_args, deterministic) == 692 &&
                  offsetof(fa_backward_args, workspace) == 696 &&
                  offsetof(fa_backward_args, workspace_size) == 704,
              "fa_backward_args only grows");
static_assert(std::is_same<fa_backward_plan, fa_forward_plan>::value, "one plan");

/// One valid fp32 call, to be spoilt. All its memory is one block, so that "nothing was written" is one
/// comparison.
struct Call {
  static constexpr std::size_t kBlock = 65536;  // bytes of each part
  static constexpr std::size_t kParts = 10;     // q, k, v, out, dout, dq, dk, dv, lse, workspace
  static constexpr unsigned char kSentinel = 0xa5;

  // Larger than the struct, for callers with a newer header.
  struct Newer {
    fa_backward_args args;
    unsigned char tail[64];
  };
  Newer newer = {};
  fa_backward_args& args = newer.args;
  const fa_backward_args* given = &newer.args;
  fa_version version = FA_AUTO;
  CUstream_st* stream = nullptr;

  Call() : memory_(kBlock * kParts + 256, kSentinel) {
    base_ = memory_.data() + (256 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 256) % 256;
    EXPECT_EQ(fa_backward_args_init(&args, sizeof args), FA_OK);
    args.q = tensor(part(0), kH, kM, kD);
    args.k = tensor(part(1), kHk, kN, kD);
    args.v = tensor(part(2), kHk, kN, kDv);
    args.out = tensor(part(3), kH, kM, kDv);
    args.dout = tensor(part(4), kH, kM, kDv);
    args.dq = tensor(part(5), kH, kM, kD);
    args.dk = tensor(part(6), kHk, kN, kD);
    args.dv = tensor(part(7), kHk, kN, kDv);
    args.lse = reinterpret_cast<const float*>(part(8));
    for (const std::size_t i : {0, 1, 2, 3, 4, 8}) {
      float* values = reinterpret_cast<float*>(part(i));
      for (std::size_t e = 0; e < kBlock / sizeof(float); ++e)
        values[e] = std::sin(static_cast<float>(e + i));
    }
    before_ = memory_;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  static fa_tensor tensor(void* data, std::int64_t heads, std::int64_t S, std::int64_t D) {
    return {data, FA_FLOAT32, 0, {kB, heads, S, D}, {heads * S * D, S * D, D, 1}};
  }
  unsigned char* part(std::size_t i) { return base_ + i * kBlock; }
  unsigned char* workspace() { return part(9); }
  std::vector<fa_tensor*> tensors() {
    return {&args.q, &args.k, &args.v, &args.out, &args.dout, &args.dq, &args.dk, &args.dv};
  }
  std::vector<fa_tensor*> queries() { return {&args.q, &args.out, &args.dout, &args.dq}; }
  std::vector<fa_tensor*> keys() { return {&args.k, &args.v, &args.dk, &args.dv}; }
  void set_size(const std::vector<fa_tensor*>& tensors, int dim, std::int64_t size) {
    for (fa_tensor* t : tensors) t->size[dim] = size;
  }
  bool untouched() const { return memory_ == before_; }

 private:
  std::vector<unsigned char> memory_, before_;
  unsigned char* base_;
};

void* at(void* p, std::ptrdiff_t bytes) {
  return static_cast<char*>(p) + bytes;
}
std::string number(std::size_t x) {
  return std::to_string(x);
}

struct BadInput {
  std::string name;
  std::function<void(Call&)> spoil;
  std::vector<std::string> text;  // each must appear: argument, value, rule
  fa_status status = FA_INVALID_ARGUMENT;
  bool call_only = false;  // what only the call itself is refused for
};

std::ostream& operator<<(std::ostream& os, const BadInput& bad) {
  return os << bad.name;
}

constexpr std::int64_t kTooLong = (std::int64_t{1} << 30) + 1;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
const char* const kNames[] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};

std::vector<BadInput> bad_inputs() {
  std::vector<BadInput> all;
  const auto add = [&](std::string name, std::function<void(Call&)> spoil, std::vector<std::string> text,
                       fa_status status = FA_INVALID_ARGUMENT, bool call_only = false) {
    all.push_back({std::move(name), std::move(spoil), std::move(text), status, call_only});
  };

  // The struct.
  add("NullArgs", [](Call& c) { c.given = nullptr; }, {"args is null"});
  add("SizeZero", [](Call& c) { c.args.size = 0; },
      {"args.size = 0 ", "fa_backward_args_init", number(sizeof(fa_backward_args))});
  add("SizeOneShort", [](Call& c) { c.args.size = sizeof(fa_backward_args) - 1; },
      {"args.size = " + number(sizeof(fa_backward_args) - 1), "not a size that fa_backward_args ever had"});
  add("SizeWithoutLse", [](Call& c) { c.args.size = offsetof(fa_backward_args, lse); }, {"not a size"});
  add("SizeOfForwardsArgs", [](Call& c) { c.args.size = sizeof(fa_forward_args); }, {"not a size"});
  add(
      "NewerFieldSet",
      [](Call& c) {
        c.args.size = sizeof(Call::Newer);
        c.newer.tail[63] = 1;
      },
      {"larger than this library's " + number(sizeof(fa_backward_args)), "newer header"}, FA_UNSUPPORTED);

  // Each tensor in turn.
  for (int i = 0; i < 8; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const std::string name = kNames[i];
    const auto each = [&](const char* what, std::function<void(fa_tensor&)> spoil,
                          std::vector<std::string> text) {
      add(
          what + std::string("Of_") + name, [index, spoil](Call& c) { spoil(*c.tensors()[index]); },
          std::move(text));
    };
    each("DtypeUnset", [](fa_tensor& t) { t.dtype = FA_DTYPE_NONE; }, {name + ".dtype is not set"});
    each("DtypeUnknown", [](fa_tensor& t) { t.dtype = 9; }, {name + ".dtype = 9 is not an element type"});
    each("Reserved", [](fa_tensor& t) { t.reserved = 3; }, {name + ".reserved = 3 must be 0"});
    each("SizeNegative", [](fa_tensor& t) { t.size[2] = -1; }, {name + ".size[2] = -1 must not be negative"});
    each("TooLong", [](fa_tensor& t) { t.size[2] = kTooLong; },
         {name + ".size[2] = 1073741825 must be at most 1073741824"});
    each("HeadsZero", [](fa_tensor& t) { t.size[1] = 0; }, {name + " heads = 0 must be at least 1"});
    each("FeaturesZero", [](fa_tensor& t) { t.size[3] = 0; },
         {name + " head dimension = 0 must be at least 1"});
    each("LastStride", [](fa_tensor& t) { t.stride[3] = 2; }, {name + ".stride[3] = 2 must be 1"});
    each("StrideNegative", [](fa_tensor& t) { t.stride[1] = -8; },
         {name + ".stride[1] = -8 must not be negative"});
    each("StrideOverflows", [](fa_tensor& t) { t.stride[0] = kMost; },
         {name + " spans more than 2^60 bytes"});
    each("Null", [](fa_tensor& t) { t.data = nullptr; }, {name + ".data is null", "has elements"});
    each("Misaligned", [](fa_tensor& t) { t.data = at(t.data, 2); },
         {name + ".data = 0x", "must be aligned to its element, 4 bytes"});
  }

  // Types and sizes between tensors.
  const auto differs = [&](const std::string& name, std::size_t index, const std::string& other,
                           bool is_gradient) {
    add("DtypeOf_" + name + "Differs", [index](Call& c) { c.tensors()[index]->dtype = FA_FLOAT16; },
        {name + ".dtype = float16 must equal " + (is_gradient ? "dq" : other) + ".dtype = float32"});
  };
  differs("k", 1, "q", false);
  differs("v", 2, "q", false);
  differs("out", 3, "q", false);
  differs("dout", 4, "q", false);
  differs("dk", 6, "dq", true);
  differs("dv", 7, "dq", true);
  add("DtypeOfDqAlone", [](Call& c) { c.args.dq.dtype = FA_FLOAT16; },
      {"dk.dtype = float32 must equal dq.dtype = float16"});
  add("HeadsDoNotDivide", [](Call& c) { c.set_size(c.keys(), 1, 3); },
      {"k heads = 3 must divide q heads = 4"});
  add("BOfKDiffers", [](Call& c) { c.args.k.size[0] = 1; }, {"k.size[0] = 1 must equal q.size[0] = 2"});
  add("MOfOutDiffers", [](Call& c) { c.args.out.size[2] = 4; }, {"out.size[2] = 4 must equal q.size[2] = 5"});
  for (int dim = 0; dim < 4; ++dim) {
    const std::string d = "[" + std::to_string(dim) + "]";
    const auto size_of_pair = [&](std::size_t index, const char* other) {
      add(std::string("SizeDiffersOf_") + kNames[index] + "_" + std::to_string(dim),
          [index, dim](Call& c) { c.tensors()[index]->size[dim] = 3; },
          {std::string(kNames[index]) + ".size" + d + " = 3 must equal " + other + ".size" + d + " = "});
    };
    size_of_pair(4, "out");
    size_of_pair(5, "q");
    size_of_pair(6, "k");
    size_of_pair(7, "v");
  }

  // What is no tensor.
  add("LseNull", [](Call& c) { c.args.lse = nullptr; },
      {"lse is null but q has 40 rows", "backward needs what forward wrote"});
  add("LseNullWithoutKeys",
      [](Call& c) {
        c.set_size(c.keys(), 2, 0);
        c.args.lse = nullptr;
      },
      {"lse is null but q has 40 rows"});
  add("LseMisaligned", [](Call& c) { c.args.lse = reinterpret_cast<const float*>(c.part(8) + 2); },
      {"lse = 0x", "must be aligned to its element, 4 bytes"});
  add("LeftBelowMinusOne", [](Call& c) { c.args.mask.left = -2; }, {"mask.left = -2 must be -1 (unbounded)"});
  add("AlignmentUnknown", [](Call& c) { c.args.mask.alignment = 2; }, {"mask.alignment = 2 must be"});
  add("ReservedOfMask", [](Call& c) { c.args.mask.reserved = 1; }, {"mask.reserved = 1 must be 0"});
  add("ScaleNaN",
      [](Call& c) {
        c.args.scale = std::numeric_limits<float>::quiet_NaN();
        c.args.scale_is_set = 1;
      },
      {"scale = nan must be finite"});
  add("ScaleIsSetUnknown", [](Call& c) { c.args.scale_is_set = -1; }, {"scale_is_set = -1 must be 0 or 1"});
  add("ThreadsNegative", [](Call& c) { c.args.threads = -1; }, {"threads = -1 must not be negative"});
  add("DeterministicUnknown", [](Call& c) { c.args.deterministic = 2; },
      {"deterministic = 2 must be 0 or 1"});
  add("DeterministicNegative", [](Call& c) { c.args.deterministic = -1; },
      {"deterministic = -1 must be 0 or 1"});
  add("VersionUnknown", [](Call& c) { c.version = 9; }, {"version = 9 is not a version"});
  add(
      "StreamOnTheHost", [](Call& c) { c.stream = reinterpret_cast<CUstream_st*>(c.part(0)); },
      {"stream must be null", "host memory"}, FA_INVALID_ARGUMENT, true);
  add(
      "PairDoesNotExist", [](Call& c) { c.version = FA_V1; }, {"V1 backward does not exist for float32"},
      FA_UNSUPPORTED);

  // Workspace.
  add("WorkspaceNullWithSize", [](Call& c) { c.args.workspace_size = 64; },
      {"workspace is null but workspace_size = 64"});
  add("WorkspaceMisaligned",
      [](Call& c) {
        c.args.workspace = c.workspace() + 64;
        c.args.workspace_size = 4096;
      },
      {"workspace = 0x", "must be aligned to 256 bytes"});
  add(
      "WorkspaceTooSmall",
      [](Call& c) {
        c.args.threads = 1;
        std::size_t needed = 0;
        ASSERT_EQ(fa_backward_workspace_size(&c.args, FA_AUTO, &needed), FA_OK);
        c.args.workspace = c.workspace();
        c.args.workspace_size = needed - 1;
      },
      {"workspace_size = ", " is less than the ", "bytes that CPU (cpu_backward_fp32) needs"},
      FA_INVALID_ARGUMENT, true);

  // Sharing: a gradient with every other tensor, with lse, the workspace and itself.
  for (std::size_t g = 5; g < 8; ++g) {
    for (std::size_t other = 0; other < 8; ++other) {
      if (other == g) continue;
      const bool gradients = other >= 5;
      const std::string first = gradients ? kNames[std::min(g, other)] : kNames[g];
      const std::string second = gradients ? kNames[std::max(g, other)] : kNames[other];
      add(std::string("Sharing_") + kNames[g] + "_" + kNames[other],
          [g, other](Call& c) { c.tensors()[g]->data = at(c.tensors()[other]->data, 4); },
          {first + " shares memory with " + second});
    }
    const std::string name = kNames[g];
    add("Sharing_" + name + "_lse", [g](Call& c) { c.tensors()[g]->data = c.part(8); },
        {name + " shares memory with lse"});
    add("Sharing_" + name + "_workspace",
        [g](Call& c) {
          c.args.workspace = c.tensors()[g]->data;
          c.args.workspace_size = 1;
        },
        {name + " shares memory with workspace"});
    for (int dim = 0; dim < 3; ++dim) {
      add("StrideZeroOf_" + name + "_" + std::to_string(dim),
          [g, dim](Call& c) { c.tensors()[g]->stride[dim] = 0; }, {name + " shares an element with itself"});
    }
  }
  add("WorkspaceInsideDout",
      [](Call& c) {
        c.args.workspace = c.part(4) + 512;
        c.args.workspace_size = 1;
      },
      {"workspace shares memory with dout"});
  add("WorkspaceOverLse",
      [](Call& c) {
        c.args.workspace = c.part(8);
        c.args.workspace_size = 256;
      },
      {"workspace shares memory with lse"});
  return all;
}

class ValidateBackward : public testing::TestWithParam<BadInput> {};

TEST_P(ValidateBackward, IsRefusedBeforeAnyWrite) {
  const BadInput& bad = GetParam();
  Call call;
  bad.spoil(call);
  const auto expect = [&](const char* function, fa_status status) {
    const std::string text = fa_last_error();
    EXPECT_EQ(status, bad.status) << function << ": " << fa_status_name(status) << ": " << text;
    for (const std::string& part : bad.text) {
      EXPECT_NE(text.find(part), std::string::npos)
          << function << " says '" << text << "', not '" << part << "'";
    }
    EXPECT_TRUE(call.untouched()) << function;
  };
  expect("fa_backward", fa_backward(call.given, call.version, call.stream));
  if (!bad.call_only) {
    std::size_t bytes = 12345;
    expect("fa_backward_workspace_size", fa_backward_workspace_size(call.given, call.version, &bytes));
    EXPECT_EQ(bytes, 12345u);
    expect("fa_backward_prepare", fa_backward_prepare(call.given, call.version));
  }
  if (!bad.call_only && bad.status == FA_INVALID_ARGUMENT) {
    char said[8] = "before";
    std::size_t length = 77;
    fa_backward_plan plan;
    std::memset(&plan, 0x5a, sizeof plan);
    plan.size = sizeof plan;
    const fa_backward_plan plan_before = plan;
    expect("fa_backward_explain",
           fa_backward_explain(call.given, call.version, &plan, said, sizeof said, &length));
    EXPECT_STREQ(said, "before");
    EXPECT_EQ(length, 77u);
    EXPECT_EQ(std::memcmp(&plan, &plan_before, sizeof plan), 0) << "explain wrote the plan";
  }
  // The next call, a valid one, works.
  Call good;
  EXPECT_EQ(fa_backward(&good.args, FA_AUTO, nullptr), FA_OK) << fa_last_error();
  EXPECT_FALSE(good.untouched());
}

INSTANTIATE_TEST_SUITE_P(Host, ValidateBackward, testing::ValuesIn(bad_inputs()),
                         [](const testing::TestParamInfo<BadInput>& of) { return of.param.name; });

TEST(ValidateBackwardList, NamesAreTheirOwn) {
  std::set<std::string> names;
  for (const BadInput& bad : bad_inputs()) {
    EXPECT_TRUE(names.insert(bad.name).second) << bad.name;
    EXPECT_FALSE(bad.text.empty()) << bad.name;
  }
  EXPECT_GE(names.size(), 180u);
}

// ---- what is near a rule and keeps it
// -------------------------------------------------------------------------

struct GoodInput {
  const char* name;
  std::function<void(Call&)> change;
  bool writes = true;  // a gradient has elements
};

std::ostream& operator<<(std::ostream& os, const GoodInput& good) {
  return os << good.name;
}

std::vector<GoodInput> good_inputs() {
  std::vector<GoodInput> all;
  const auto add = [&](const char* name, std::function<void(Call&)> change, bool writes = true) {
    all.push_back({name, std::move(change), writes});
  };
  add("AsItIs", [](Call&) {});
  add("LongerStructOfZeros", [](Call& c) { c.args.size = sizeof(Call::Newer); });
  add("Deterministic", [](Call& c) { c.args.deterministic = 1; });
  add("GradientsOfAnotherType", [](Call& c) {
    for (fa_tensor* t : {&c.args.dq, &c.args.dk, &c.args.dv}) t->dtype = FA_BFLOAT16;
  });
  add("InputsAreOneTensor", [](Call& c) {
    c.args.v.size[3] = c.args.out.size[3] = c.args.dout.size[3] = c.args.dv.size[3] = kD;
    c.args.k.data = c.args.v.data = c.args.out.data = c.args.dout.data = c.args.q.data;
  });
  add("InputsOfStrideZero", [](Call& c) {
    for (fa_tensor* t : {&c.args.q, &c.args.k, &c.args.v, &c.args.out, &c.args.dout}) {
      t->stride[0] = t->stride[1] = t->stride[2] = 0;
    }
  });
  add("DoutIsOut", [](Call& c) { c.args.dout = c.args.out; });
  add("GradientsOfOnePackedBuffer", [](Call& c) {
    // [B, M, H + 2 Hk, D] with M = N and D = Dv.
    for (fa_tensor* t : c.keys()) t->size[2] = kM;
    c.args.v.size[3] = c.args.out.size[3] = c.args.dout.size[3] = c.args.dv.size[3] = kD;
    const std::int64_t total = kH + 2 * kHk;
    std::int64_t first = 0;
    for (fa_tensor* t : {&c.args.dq, &c.args.dk, &c.args.dv}) {
      t->data = at(c.part(5), first * kD * 4);
      first += t->size[1];
      t->stride[0] = kM * total * kD, t->stride[1] = kD, t->stride[2] = total * kD;
    }
  });
  add("GradientsInTheGapsOfInputs", [](Call& c) {
    c.args.q.stride[2] = 2 * kD, c.args.q.stride[1] = 2 * kD * kM, c.args.q.stride[0] = 2 * kD * kM * kH;
    std::copy(c.args.q.stride, c.args.q.stride + 3, c.args.dq.stride);
    c.args.dq.data = at(c.args.q.data, kD * 4);
  });
  add("AnyStrideWhereThereIsOneIndex", [](Call& c) {
    c.set_size(c.tensors(), 0, 1);
    for (fa_tensor* t : c.tensors()) t->stride[0] = kMost;
  });
  add("WorkspaceOfTheExactSize", [](Call& c) {
    c.args.threads = 1;
    ASSERT_EQ(fa_backward_workspace_size(&c.args, FA_AUTO, &c.args.workspace_size), FA_OK);
    ASSERT_LE(c.args.workspace_size, Call::kBlock);
    c.args.workspace = c.workspace();
  });
  add(
      "NoBatches",
      [](Call& c) {
        c.set_size(c.tensors(), 0, 0);
        for (fa_tensor* t : c.tensors()) t->data = nullptr, t->stride[0] = kMost;
        c.args.lse = nullptr;
      },
      false);
  add("NoQueries", [](Call& c) {
    c.set_size(c.queries(), 2, 0);
    for (fa_tensor* t : c.queries()) t->data = nullptr;
    c.args.lse = nullptr;
  });
  add("NoKeys", [](Call& c) {
    c.set_size(c.keys(), 2, 0);
    for (fa_tensor* t : c.keys()) t->data = nullptr;
  });
  add(
      "NeitherQueriesNorKeys",
      [](Call& c) {
        c.set_size(c.tensors(), 2, 0);
        for (fa_tensor* t : c.tensors()) t->data = nullptr;
        c.args.lse = nullptr;
      },
      false);
  return all;
}

class AcceptsBackward : public testing::TestWithParam<GoodInput> {};

TEST_P(AcceptsBackward, ValidCallsRun) {
  Call call;
  GetParam().change(call);
  std::size_t bytes = 0;
  EXPECT_EQ(fa_backward_workspace_size(call.given, call.version, &bytes), FA_OK) << fa_last_error();
  EXPECT_EQ(fa_backward_prepare(call.given, call.version), FA_OK) << fa_last_error();
  fa_backward_plan plan = {};
  plan.size = sizeof plan;
  EXPECT_EQ(fa_backward_explain(call.given, call.version, &plan, nullptr, 0, nullptr), FA_OK)
      << fa_last_error();
  EXPECT_EQ(plan.runs, 1);
  EXPECT_EQ(plan.workspace_size, bytes);
  EXPECT_TRUE(call.untouched()) << "a query wrote something";
  EXPECT_EQ(fa_backward(call.given, call.version, call.stream), FA_OK) << fa_last_error();
  EXPECT_EQ(call.untouched(), !GetParam().writes);
}

INSTANTIATE_TEST_SUITE_P(Host, AcceptsBackward, testing::ValuesIn(good_inputs()),
                         [](const testing::TestParamInfo<GoodInput>& of) { return of.param.name; });

// Shorter structs, as older headers may have them: what they lack is at its default.
TEST(BackwardStructSizes, ShorterStructsMeanDefaults) {
  Call reference;
  ASSERT_EQ(fa_backward(&reference.args, FA_AUTO, nullptr), FA_OK);
  for (const std::size_t size :
       {offsetof(fa_backward_args, mask), offsetof(fa_backward_args, scale),
        offsetof(fa_backward_args, threads), offsetof(fa_backward_args, deterministic),
        offsetof(fa_backward_args, workspace), offsetof(fa_backward_args, workspace_size),
        sizeof(fa_backward_args)}) {
    SCOPED_TRACE("size " + std::to_string(size));
    Call call;
    call.args.size = size;
    fa_backward_args shorter;
    std::memset(&shorter, 0xff, sizeof shorter);
    std::memcpy(&shorter, &call.args, size);
    ASSERT_EQ(fa_backward(&shorter, FA_AUTO, nullptr), FA_OK) << fa_last_error();
    for (const std::size_t part : {5, 6, 7}) {
      EXPECT_EQ(std::memcmp(call.part(part), reference.part(part), Call::kBlock), 0) << part;
    }
  }
}

TEST(BackwardStructSizes, InitSetsTheDefaults) {
  fa_backward_args args;
  std::memset(&args, 0xff, sizeof args);
  ASSERT_EQ(fa_backward_args_init(&args, sizeof args), FA_OK);
  EXPECT_EQ(args.size, sizeof args);
  EXPECT_EQ(args.mask.left, -1);
  EXPECT_EQ(args.mask.right, -1);
  EXPECT_EQ(args.scale_is_set, 0);
  EXPECT_EQ(args.threads, 0);
  EXPECT_EQ(args.deterministic, 0);
  EXPECT_EQ(args.lse, nullptr);
  EXPECT_EQ(args.workspace, nullptr);
  for (const fa_tensor* t :
       {&args.q, &args.k, &args.v, &args.out, &args.dout, &args.dq, &args.dk, &args.dv}) {
    EXPECT_EQ(t->stride[3], 1);
    EXPECT_EQ(t->dtype, FA_DTYPE_NONE);
    EXPECT_EQ(t->data, nullptr);
  }
  std::memset(&args, 0xff, sizeof args);
  ASSERT_EQ(fa_backward_args_init(&args, offsetof(fa_backward_args, mask)), FA_OK);
  EXPECT_EQ(args.mask.reserved, -1) << "wrote past the size";
  EXPECT_EQ(fa_backward_args_init(nullptr, sizeof args), FA_INVALID_ARGUMENT);
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof args - 1}) {
    EXPECT_EQ(fa_backward_args_init(&args, size), FA_INVALID_ARGUMENT) << size;
  }
}

}  // namespace
}  // namespace fa::test
