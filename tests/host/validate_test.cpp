/// Bad input: each rule has its status and its text, nothing is written, and the next call works.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::test {
namespace {

constexpr std::int64_t kB = 2, kH = 4, kHk = 2, kM = 5, kN = 6, kD = 8, kDv = 8;

/// One valid fp32 call, to be spoilt. All its memory is one block, so that "nothing was written" is one
/// comparison.
struct Call {
  static constexpr std::size_t kBlock = 16384;      // bytes of each part
  static constexpr std::size_t kParts = 6;          // q, k, v, out, lse, workspace
  static constexpr unsigned char kSentinel = 0xa5;  // what outputs and workspace hold

  // Larger than the struct, for callers with a newer header.
  struct Newer {
    fa_forward_args args;
    unsigned char tail[64];
  };
  Newer newer = {};
  fa_forward_args& args = newer.args;
  const fa_forward_args* given = &newer.args;
  fa_version version = FA_AUTO;
  CUstream_st* stream = nullptr;
  std::size_t* bytes_to = &bytes;
  std::size_t bytes = 0;

  Call() : memory_(kBlock * kParts + 256, kSentinel) {
    base_ = memory_.data() + (256 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 256) % 256;
    EXPECT_EQ(fa_forward_args_init(&args, sizeof args), FA_OK);
    args.q = tensor(part(0), kH, kM, kD);
    args.k = tensor(part(1), kHk, kN, kD);
    args.v = tensor(part(2), kHk, kN, kDv);
    args.out = tensor(part(3), kH, kM, kDv);
    args.lse = reinterpret_cast<float*>(part(4));
    for (std::size_t i = 0; i < 3; ++i) {
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
  unsigned char* workspace() { return part(5); }
  // Every tensor in the element type; the strides, in elements, stay.
  void set_dtype(fa_dtype dtype) {
    for (fa_tensor* t : {&args.q, &args.k, &args.v, &args.out}) t->dtype = dtype;
  }
  // The same size for one dimension of some tensors.
  void set_size(std::initializer_list<fa_tensor*> tensors, int dim, std::int64_t size) {
    for (fa_tensor* t : tensors) t->size[dim] = size;
  }
  bool untouched() const { return memory_ == before_; }

 private:
  std::vector<unsigned char> memory_, before_;
  unsigned char* base_;
};

std::size_t needed_workspace(Call& call) {
  std::size_t bytes = 0;
  EXPECT_EQ(fa_forward_workspace_size(&call.args, call.version, &bytes), FA_OK) << fa_last_error();
  return bytes;
}

void* at(void* p, std::ptrdiff_t bytes) {
  return static_cast<char*>(p) + bytes;
}
std::string number(std::int64_t x) {
  return std::to_string(x);
}

struct BadInput {
  const char* name;
  std::function<void(Call&)> spoil;
  std::vector<std::string> text;  // each must appear: argument, value, rule
  fa_status status = FA_INVALID_ARGUMENT;
  bool forward_only = false;  // what only the call itself is refused for
};

std::ostream& operator<<(std::ostream& os, const BadInput& bad) {
  return os << bad.name;
}

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kTooLong = (std::int64_t{1} << 30) + 1;
constexpr std::int64_t kTooBig = std::int64_t{1} << 31;
constexpr std::int64_t kMostNegative = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::vector<BadInput> bad_inputs() {
  std::vector<BadInput> all;
  const auto add = [&](const char* name, std::function<void(Call&)> spoil, std::vector<std::string> text,
                       fa_status status = FA_INVALID_ARGUMENT, bool forward_only = false) {
    all.push_back({name, std::move(spoil), std::move(text), status, forward_only});
  };

  // The struct.
  add("NullArgs", [](Call& c) { c.given = nullptr; }, {"args is null"});
  add("SizeZero", [](Call& c) { c.args.size = 0; },
      {"args.size = 0 ", "fa_forward_args_init", number(sizeof(fa_forward_args))});
  add("SizeTwelve", [](Call& c) { c.args.size = 12; },
      {"args.size = 12 ", "not a size that fa_forward_args ever had"});
  add("SizeOneShort", [](Call& c) { c.args.size = sizeof(fa_forward_args) - 1; },
      {"args.size = " + number(sizeof(fa_forward_args) - 1), "not a size"});
  add("SizeWithoutOut", [](Call& c) { c.args.size = offsetof(fa_forward_args, out); },
      {"args.size = " + number(offsetof(fa_forward_args, out)), "not a size"});
  add("SizeGarbage", [](Call& c) { c.args.size = static_cast<std::size_t>(0xcccccccccccccccc); },
      {"args.size = 14757395258967641292", "not a size"});
  add(
      "NewerFieldSet",
      [](Call& c) {
        c.args.size = sizeof(Call::Newer);
        c.newer.tail[63] = 1;
      },
      {"args.size = " + number(sizeof(Call::Newer)),
       "larger than this library's " + number(sizeof(fa_forward_args)), "newer header"},
      FA_UNSUPPORTED);
  add(
      "NewerFirstByteSet",
      [](Call& c) {
        c.args.size = sizeof(Call::Newer);
        c.newer.tail[0] = 0x80;
      },
      {"args.size", "larger than"}, FA_UNSUPPORTED);
  add("ReservedOfArgs", [](Call& c) { c.args.reserved = 7; }, {"args.reserved = 7 must be 0"});
  add("ReservedOfMask", [](Call& c) { c.args.mask.reserved = 1; }, {"mask.reserved = 1 must be 0"});
  add("ReservedOfQ", [](Call& c) { c.args.q.reserved = -1; }, {"q.reserved = -1 must be 0"});
  add("ReservedOfOut", [](Call& c) { c.args.out.reserved = 2; }, {"out.reserved = 2 must be 0"});

  // Element types.
  add("DtypeOfQUnset", [](Call& c) { c.args.q.dtype = FA_DTYPE_NONE; }, {"q.dtype is not set"});
  add("DtypeOfKUnset", [](Call& c) { c.args.k.dtype = FA_DTYPE_NONE; }, {"k.dtype is not set"});
  add("DtypeOfVUnset", [](Call& c) { c.args.v.dtype = FA_DTYPE_NONE; }, {"v.dtype is not set"});
  add("DtypeOfOutUnset", [](Call& c) { c.args.out.dtype = FA_DTYPE_NONE; }, {"out.dtype is not set"});
  add("DtypeUnknown", [](Call& c) { c.args.q.dtype = 4; }, {"q.dtype = 4 is not an element type"});
  add("DtypeNegative", [](Call& c) { c.args.out.dtype = -3; }, {"out.dtype = -3 is not an element type"});
  add("DtypeOfKDiffers", [](Call& c) { c.args.k.dtype = FA_BFLOAT16; },
      {"k.dtype = bfloat16 must equal q.dtype = float32"});
  add("DtypeOfVDiffers", [](Call& c) { c.args.v.dtype = FA_FLOAT16; },
      {"v.dtype = float16 must equal q.dtype = float32"});
  add("DtypeOfQDiffers", [](Call& c) { c.args.q.dtype = FA_FLOAT16; },
      {"k.dtype = float32 must equal q.dtype = float16"});

  // Sizes.
  add("BNegative", [](Call& c) { c.args.q.size[0] = -2; }, {"q.size[0] = -2 must not be negative"});
  add("MNegative", [](Call& c) { c.args.q.size[2] = -1; }, {"q.size[2] = -1 must not be negative"});
  add("NNegative", [](Call& c) { c.args.k.size[2] = -6; }, {"k.size[2] = -6 must not be negative"});
  add("DvNegative", [](Call& c) { c.args.v.size[3] = -8; }, {"v.size[3] = -8 must not be negative"});
  add("MOfOutNegative", [](Call& c) { c.args.out.size[2] = kMostNegative; },
      {"out.size[2] = -9223372036854775808 must not be negative"});
  add("HZero",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.out}, 1, 0);
      },
      {"q heads = 0 must be at least 1"});
  add("HkZero",
      [](Call& c) {
        c.set_size({&c.args.k, &c.args.v}, 1, 0);
      },
      {"k heads = 0 must be at least 1"});
  add("DZero",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k}, 3, 0);
      },
      {"q head dimension = 0 must be at least 1"});
  add("DvZero",
      [](Call& c) {
        c.set_size({&c.args.v, &c.args.out}, 3, 0);
      },
      {"v head dimension = 0 must be at least 1"});
  add("MTooLong",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.out}, 2, kTooLong);
      },
      {"q.size[2] = 1073741825 must be at most 1073741824"});
  add("NTooLong",
      [](Call& c) {
        c.set_size({&c.args.k, &c.args.v}, 2, kTooLong);
      },
      {"k.size[2] = 1073741825 must be at most 1073741824"});
  add("BTooBig",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k, &c.args.v, &c.args.out}, 0, kTooBig);
      },
      {"q.size[0] = 2147483648 must be at most 2147483647"});
  add("HTooBig",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.out}, 1, kTooBig);
      },
      {"q.size[1] = 2147483648 must be at most 2147483647"});
  add("DTooBig",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k}, 3, kMost);
      },
      {"q.size[3] = 9223372036854775807 must be at most 2147483647"});
  add("DvTooBig",
      [](Call& c) {
        c.set_size({&c.args.v, &c.args.out}, 3, kTooBig);
      },
      {"v.size[3] = 2147483648 must be at most 2147483647"});
  add("BOfKDiffers", [](Call& c) { c.args.k.size[0] = 1; }, {"k.size[0] = 1 must equal q.size[0] = 2"});
  add("BOfVDiffers", [](Call& c) { c.args.v.size[0] = 3; }, {"v.size[0] = 3 must equal k.size[0] = 2"});
  add("BOfOutDiffers", [](Call& c) { c.args.out.size[0] = 1; }, {"out.size[0] = 1 must equal q.size[0] = 2"});
  add("DOfKDiffers", [](Call& c) { c.args.k.size[3] = 7; }, {"k.size[3] = 7 must equal q.size[3] = 8"});
  add("NOfVDiffers", [](Call& c) { c.args.v.size[2] = 5; }, {"v.size[2] = 5 must equal k.size[2] = 6"});
  add("HkOfVDiffers", [](Call& c) { c.args.v.size[1] = 4; }, {"v.size[1] = 4 must equal k.size[1] = 2"});
  add("HOfOutDiffers", [](Call& c) { c.args.out.size[1] = 2; }, {"out.size[1] = 2 must equal q.size[1] = 4"});
  add("MOfOutDiffers", [](Call& c) { c.args.out.size[2] = 4; }, {"out.size[2] = 4 must equal q.size[2] = 5"});
  add("DvOfOutDiffers", [](Call& c) { c.args.out.size[3] = 4; },
      {"out.size[3] = 4 must equal v.size[3] = 8"});
  add("HeadsDoNotDivide",
      [](Call& c) {
        c.set_size({&c.args.k, &c.args.v}, 1, 3);
      },
      {"k heads = 3 must divide q heads = 4"});
  add("MoreKeyHeadsThanQueryHeads",
      [](Call& c) {
        c.set_size({&c.args.k, &c.args.v}, 1, 8);
      },
      {"k heads = 8 must divide q heads = 4"});
  add("TooManyRows",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k, &c.args.v, &c.args.out}, 0, 1 << 30);
        c.set_size({&c.args.q, &c.args.out}, 1, 1 << 30);
        c.set_size({&c.args.q, &c.args.out}, 2, 1 << 30);
        for (fa_tensor* t : {&c.args.q, &c.args.k, &c.args.v}) t->stride[0] = t->stride[1] = t->stride[2] = 0;
      },
      {"q has more than 2^58 rows"});

  // Strides.
  add("LastStrideOfQ", [](Call& c) { c.args.q.stride[3] = 2; }, {"q.stride[3] = 2 must be 1"});
  add("LastStrideOfKZero", [](Call& c) { c.args.k.stride[3] = 0; }, {"k.stride[3] = 0 must be 1"});
  add("LastStrideOfV", [](Call& c) { c.args.v.stride[3] = kN; }, {"v.stride[3] = 6 must be 1"});
  add("LastStrideOfOut", [](Call& c) { c.args.out.stride[3] = 4; }, {"out.stride[3] = 4 must be 1"});
  add("LastStrideNegative", [](Call& c) { c.args.q.stride[3] = -1; },
      {"q.stride[3] = -1 must not be negative"});
  add("StrideOfQNegative", [](Call& c) { c.args.q.stride[0] = -160; },
      {"q.stride[0] = -160 must not be negative"});
  add("StrideOfKNegative", [](Call& c) { c.args.k.stride[2] = -8; },
      {"k.stride[2] = -8 must not be negative"});
  add("StrideOfVNegative", [](Call& c) { c.args.v.stride[1] = kMostNegative; },
      {"v.stride[1] = -9223372036854775808 must not be negative"});
  add("StrideOfOutNegative", [](Call& c) { c.args.out.stride[2] = -64; },
      {"out.stride[2] = -64 must not be negative"});
  add("StrideOverflows", [](Call& c) { c.args.q.stride[0] = kMost; },
      {"q spans more than 2^60 bytes", "stride[0] = 9223372036854775807 over size 2"});
  add("StridesOverflowTogether",
      [](Call& c) {
        c.args.v.stride[0] = std::int64_t{1} << 57;
        c.args.v.stride[1] = std::int64_t{1} << 57;
      },
      {"v spans more than 2^60 bytes"});
  add("SizesOverflow",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k, &c.args.v, &c.args.out}, 0, (std::int64_t{1} << 31) - 1);
        c.args.k.stride[0] = std::int64_t{1} << 40;
        c.args.q.stride[0] = 0;
      },
      {"k spans more than 2^60 bytes", "stride[0] = 1099511627776 over size 2147483647"});

  // Pointers.
  add("QNull", [](Call& c) { c.args.q.data = nullptr; }, {"q.data is null", "2 x 4 x 5 x 8"});
  add("KNull", [](Call& c) { c.args.k.data = nullptr; }, {"k.data is null", "2 x 2 x 6 x 8"});
  add("VNull", [](Call& c) { c.args.v.data = nullptr; }, {"v.data is null"});
  add("OutNull", [](Call& c) { c.args.out.data = nullptr; }, {"out.data is null"});
  add("QMisaligned", [](Call& c) { c.args.q.data = at(c.args.q.data, 2); },
      {"q.data = 0x", "must be aligned to its element, 4 bytes"});
  add("KMisaligned", [](Call& c) { c.args.k.data = at(c.args.k.data, 1); },
      {"k.data = 0x", "must be aligned to its element, 4 bytes"});
  add("VMisaligned",
      [](Call& c) {
        c.set_dtype(FA_FLOAT16);
        c.args.v.data = at(c.args.v.data, 1);
      },
      {"v.data = 0x", "must be aligned to its element, 2 bytes"});
  add("OutMisaligned", [](Call& c) { c.args.out.data = at(c.args.out.data, 3); },
      {"out.data = 0x", "must be aligned to its element, 4 bytes"});
  add("LseMisaligned", [](Call& c) { c.args.lse = static_cast<float*>(at(c.args.lse, 2)); },
      {"lse = 0x", "must be aligned to its element, 4 bytes"});

  // Mask, scale, threads, version, stream.
  add("LeftBelowMinusOne", [](Call& c) { c.args.mask.left = -2; },
      {"mask.left = -2 must be -1 (unbounded) or not negative"});
  add("RightBelowMinusOne", [](Call& c) { c.args.mask.right = kMostNegative; },
      {"mask.right = -9223372036854775808 must be -1 (unbounded) or not negative"});
  add("AlignmentUnknown", [](Call& c) { c.args.mask.alignment = 2; },
      {"mask.alignment = 2 must be FA_BOTTOM_RIGHT (0) or FA_TOP_LEFT (1)"});
  add("AlignmentNegative", [](Call& c) { c.args.mask.alignment = -1; }, {"mask.alignment = -1 must be"});
  add("ScaleNaN",
      [](Call& c) {
        c.args.scale = kNaN;
        c.args.scale_is_set = 1;
      },
      {"scale = nan must be finite"});
  add("ScaleInfinite",
      [](Call& c) {
        c.args.scale = -kInfinity;
        c.args.scale_is_set = 1;
      },
      {"scale = -inf must be finite"});
  add("ScaleIsSetUnknown", [](Call& c) { c.args.scale_is_set = 2; }, {"scale_is_set = 2 must be 0 or 1"});
  add("ThreadsNegative", [](Call& c) { c.args.threads = -1; }, {"threads = -1 must not be negative"});
  add("ThreadsMostNegative", [](Call& c) { c.args.threads = std::numeric_limits<std::int32_t>::min(); },
      {"threads = -2147483648 must not be negative"});
  add("VersionUnknown", [](Call& c) { c.version = 9; }, {"version = 9 is not a version"});
  add("VersionNegative", [](Call& c) { c.version = -2; }, {"version = -2 is not a version"});
  add("VersionHuge", [](Call& c) { c.version = std::numeric_limits<fa_version>::max(); },
      {"version = 2147483647 is not a version"});
  add(
      "StreamOnTheHost", [](Call& c) { c.stream = reinterpret_cast<CUstream_st*>(c.part(0)); },
      {"stream must be null", "host memory"}, FA_INVALID_ARGUMENT, true);

  // Workspace.
  add("WorkspaceNullWithSize", [](Call& c) { c.args.workspace_size = 64; },
      {"workspace is null but workspace_size = 64"});
  add("WorkspaceMisaligned",
      [](Call& c) {
        c.args.workspace = c.workspace() + 64;
        c.args.workspace_size = 4096;
      },
      {"workspace = 0x", "must be aligned to 256 bytes"});
  add("WorkspaceSizeHuge",
      [](Call& c) {
        c.args.workspace = c.workspace();
        c.args.workspace_size = std::numeric_limits<std::size_t>::max();
      },
      {"workspace_size = 18446744073709551615 must be at most 2^60"});
  add(
      "WorkspaceTooSmall",
      [](Call& c) {
        c.args.threads = 1;
        const std::size_t needed = needed_workspace(c);
        ASSERT_GT(needed, 0u);
        c.args.workspace = c.workspace();
        c.args.workspace_size = needed - 1;
      },
      {"workspace_size = ", " is less than the ", "bytes that CPU (cpu_fp32) needs"}, FA_INVALID_ARGUMENT,
      true);
  add("WorkspaceInsideOut",
      [](Call& c) {
        c.args.workspace = c.args.out.data;
        c.args.workspace_size = 1;
      },
      {"out shares memory with workspace"});
  add("WorkspaceOverLse",
      [](Call& c) {
        c.args.workspace = c.part(4);
        c.args.workspace_size = 256;
      },
      {"lse shares memory with workspace"});
  add("WorkspaceInsideQ",
      [](Call& c) {
        c.args.workspace = c.part(0) + 1024;  // q has 1,280 bytes
        c.args.workspace_size = 1;
      },
      {"workspace shares memory with q"});
  add("WorkspaceRunsIntoV",
      [](Call& c) {
        c.args.workspace = c.part(1) + 1024;
        c.args.workspace_size = Call::kBlock;
      },
      {"workspace shares memory with v"});

  // Sharing.
  add("OutIsQ", [](Call& c) { c.args.out.data = c.args.q.data; }, {"out shares memory with q"});
  add("OutIsK", [](Call& c) { c.args.out.data = c.args.k.data; }, {"out shares memory with k"});
  add("OutOverlapsTheEndOfV",
      [](Call& c) { c.args.out.data = at(c.args.v.data, kB * kHk * kN * kDv * 4 - 4); },
      {"out shares memory with v"});
  add("OutReachesIntoK", [](Call& c) { c.args.out.data = at(c.args.k.data, -(kB * kH * kM * kDv * 4 - 4)); },
      {"out shares memory with k"});
  add("OutOfBatchStrideZero", [](Call& c) { c.args.out.stride[0] = 0; },
      {"out shares an element with itself"});
  add("OutOfHeadStrideZero", [](Call& c) { c.args.out.stride[1] = 0; },
      {"out shares an element with itself"});
  add("OutOfRowStrideZero", [](Call& c) { c.args.out.stride[2] = 0; }, {"out shares an element with itself"});
  add("OutRowsOverlap", [](Call& c) { c.args.out.stride[2] = kDv - 1; },
      {"out shares an element with itself"});
  add("OutHeadsOverlap", [](Call& c) { c.args.out.stride[1] = kM * kDv - 1; },
      {"out shares an element with itself"});
  add("OutBatchesMeetHeads",
      [](Call& c) {
        c.args.out.stride[0] = 2 * kM * kDv;  // batch 1 begins at head 2 of batch 0
      },
      {"out shares an element with itself"});
  add("OutStridesMeetFarAway",
      [](Call& c) {
        // 3 heads of 40 are 120, 1 batch of 120: head 3 of batch 0 is head 0 of batch 1.
        c.args.out.stride[0] = 120;
        c.args.out.stride[1] = 40;
        c.args.out.stride[2] = 8;
      },
      {"out shares an element with itself"});
  add("LseIsOut", [](Call& c) { c.args.lse = static_cast<float*>(c.args.out.data); },
      {"out shares memory with lse"});
  add("LseInsideOut",
      [](Call& c) { c.args.lse = static_cast<float*>(at(c.args.out.data, kB * kH * kM * kDv * 4 - 4)); },
      {"out shares memory with lse"});
  add("LseInsideAGapOfOutTooSmall",
      [](Call& c) {
        c.args.out.stride[0] = kH * kM * kDv + 8;  // a gap of 32 bytes after batch 0, lse has 160
        c.args.lse = static_cast<float*>(c.args.out.data) + kH * kM * kDv;
      },
      {"out shares memory with lse"});
  add("LseOverQ", [](Call& c) { c.args.lse = static_cast<float*>(c.args.q.data); },
      {"lse shares memory with q"});
  add("LseOverTheEndOfK",
      [](Call& c) { c.args.lse = static_cast<float*>(at(c.args.k.data, kB * kHk * kN * kD * 4 - 4)); },
      {"lse shares memory with k"});
  add("LseBeforeV",
      [](Call& c) { c.args.lse = static_cast<float*>(at(c.args.v.data, -(kB * kH * kM * 4 - 4))); },
      {"lse shares memory with v"});
  add("OutInterleavedWithQByHalfAnElement",
      [](Call& c) {
        // fp16 out in the gaps of q's rows, one element too wide.
        c.args.q.stride[2] = 2 * kD, c.args.q.stride[1] = 2 * kD * kM, c.args.q.stride[0] = 2 * kD * kM * kH;
        c.args.out.dtype = FA_FLOAT16;
        c.args.out.stride[2] = 4 * kD, c.args.out.stride[1] = 4 * kD * kM,
        c.args.out.stride[0] = 4 * kD * kM * kH;
        c.args.out.data = at(c.args.q.data, kD * 4 - 2);
      },
      {"out shares memory with q"});
  add("OutTransposedOverV",
      [](Call& c) {
        // [S][H][B][D] over [B][S][H][D]: the same block, another order.
        c.args.out.stride[0] = kDv, c.args.out.stride[1] = kB * kDv, c.args.out.stride[2] = kH * kB * kDv;
        c.args.v.stride[1] = kDv, c.args.v.stride[2] = kHk * kDv, c.args.v.stride[0] = kN * kHk * kDv;
        c.args.out.data = at(c.args.v.data, 64);
      },
      {"out shares memory with v"});
  return all;
}

class Validate : public testing::TestWithParam<BadInput> {};

TEST_P(Validate, IsRefusedBeforeAnyWrite) {
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
  expect("fa_forward", fa_forward(call.given, call.version, call.stream));
  if (!bad.forward_only) {
    call.bytes = 12345;
    expect("fa_forward_workspace_size", fa_forward_workspace_size(call.given, call.version, &call.bytes));
    EXPECT_EQ(call.bytes, 12345u);
    expect("fa_forward_prepare", fa_forward_prepare(call.given, call.version));
    char said[8] = "before";
    std::size_t length = 77;
    fa_forward_plan plan;
    std::memset(&plan, 0x5a, sizeof plan);
    plan.size = sizeof plan;
    const fa_forward_plan plan_before = plan;
    expect("fa_forward_explain",
           fa_forward_explain(call.given, call.version, &plan, said, sizeof said, &length));
    EXPECT_STREQ(said, "before");
    EXPECT_EQ(length, 77u);
    EXPECT_EQ(std::memcmp(&plan, &plan_before, sizeof plan), 0) << "explain wrote the plan";
  }
  // The next call, a valid one, works.
  Call good;
  EXPECT_EQ(fa_forward(&good.args, FA_AUTO, nullptr), FA_OK) << fa_last_error();
  EXPECT_FALSE(good.untouched());
}

INSTANTIATE_TEST_SUITE_P(Host, Validate, testing::ValuesIn(bad_inputs()),
                         [](const testing::TestParamInfo<BadInput>& of) { return of.param.name; });

TEST(ValidateList, HasSixtyCasesWithNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const BadInput& bad : bad_inputs()) {
    EXPECT_TRUE(names.insert(bad.name).second) << bad.name;
    EXPECT_FALSE(bad.text.empty()) << bad.name;
  }
  EXPECT_GE(names.size(), 60u);
}

// ---- what is near a rule and keeps it
// -------------------------------------------------------------------------

struct GoodInput {
  const char* name;
  std::function<void(Call&)> change;
  bool writes = true;  // out has elements
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
  add("NoLse", [](Call& c) { c.args.lse = nullptr; });
  add("LargestWindow", [](Call& c) { c.args.mask.left = c.args.mask.right = kMost; });
  add("UnsetScaleIsNotRead", [](Call& c) { c.args.scale = kNaN; });
  add("ScaleZero", [](Call& c) { c.args.scale_is_set = 1; });
  add("ManyThreads", [](Call& c) { c.args.threads = std::numeric_limits<std::int32_t>::max(); });
  add("InputsAreOneTensor", [](Call& c) { c.args.k.data = c.args.v.data = c.args.q.data; });
  add("InputsOfStrideZero", [](Call& c) {
    for (fa_tensor* t : {&c.args.q, &c.args.k, &c.args.v}) t->stride[0] = t->stride[1] = t->stride[2] = 0;
  });
  add("InputRowsOverlap", [](Call& c) { c.args.k.stride[2] = 1; });
  add("AnyStrideWhereThereIsOneIndex", [](Call& c) {
    c.set_size({&c.args.q, &c.args.k, &c.args.v, &c.args.out}, 0, 1);
    c.args.q.stride[0] = kMost;
    c.args.out.stride[0] = 0;
  });
  add("OutNextToQ", [](Call& c) { c.args.out.data = at(c.args.q.data, kB * kH * kM * kD * 4); });
  add("LseNextToOut",
      [](Call& c) { c.args.lse = static_cast<float*>(at(c.args.out.data, kB * kH * kM * kDv * 4)); });
  add("LseInAGapOfOut", [](Call& c) {
    c.args.out.stride[0] = kH * kM * kDv + kB * kH * kM;
    c.args.lse = static_cast<float*>(c.args.out.data) + kH * kM * kDv;
  });
  add("SlicesOfOnePackedBuffer", [](Call& c) {
    // [B, M, H + 2 Hk + H, D]: q, k, v and out side by side in every position. M = N.
    c.set_size({&c.args.k, &c.args.v}, 2, kM);
    const std::int64_t total = kH + 2 * kHk + kH;
    std::int64_t first = 0;
    for (fa_tensor* t : {&c.args.q, &c.args.k, &c.args.v, &c.args.out}) {
      t->data = at(c.args.q.data, first * kD * 4);
      first += t->size[1];
      t->stride[0] = kM * total * kD, t->stride[1] = kD, t->stride[2] = total * kD;
    }
  });
  add("OutInTheGapsOfQ", [](Call& c) {
    c.args.q.stride[2] = 2 * kD, c.args.q.stride[1] = 2 * kD * kM, c.args.q.stride[0] = 2 * kD * kM * kH;
    std::copy(c.args.q.stride, c.args.q.stride + 3, c.args.out.stride);
    c.args.out.data = at(c.args.q.data, kD * 4);
  });
  add("OutTransposed", [](Call& c) {
    c.args.out.stride[0] = kDv, c.args.out.stride[1] = kB * kDv, c.args.out.stride[2] = kH * kB * kDv;
  });
  add("OutHeadsInterleavedByRow",
      [](Call& c) { c.args.out.stride[1] = kDv, c.args.out.stride[2] = kH * kDv; });
  add("WorkspaceOfTheExactSize", [](Call& c) {
    c.args.threads = 1;
    c.args.workspace_size = needed_workspace(c);
    c.args.workspace = c.workspace();
  });
  add(
      "NoBatches",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k, &c.args.v, &c.args.out}, 0, 0);
        c.args.q.data = c.args.k.data = c.args.v.data = c.args.out.data = nullptr;
      },
      false);
  add(
      "NoQueries",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.out}, 2, 0);
        c.args.q.data = c.args.out.data = nullptr;
      },
      false);
  add("NoKeys", [](Call& c) {
    c.set_size({&c.args.k, &c.args.v}, 2, 0);
    c.args.k.data = c.args.v.data = nullptr;
  });
  add(
      "NullsWithoutElementsHaveAnyStride",
      [](Call& c) {
        c.set_size({&c.args.q, &c.args.k, &c.args.v, &c.args.out}, 0, 0);
        for (fa_tensor* t : {&c.args.q, &c.args.k, &c.args.v, &c.args.out})
          t->data = nullptr, t->stride[0] = kMost;
      },
      false);
  add("OutOfAnotherType", [](Call& c) { c.args.out.dtype = FA_BFLOAT16; });
  return all;
}

class Accepts : public testing::TestWithParam<GoodInput> {};

TEST_P(Accepts, ValidCallsRun) {
  Call call;
  GetParam().change(call);
  std::size_t bytes = 0;
  EXPECT_EQ(fa_forward_workspace_size(call.given, call.version, &bytes), FA_OK) << fa_last_error();
  EXPECT_EQ(fa_forward_prepare(call.given, call.version), FA_OK) << fa_last_error();
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  EXPECT_EQ(fa_forward_explain(call.given, call.version, &plan, nullptr, 0, nullptr), FA_OK)
      << fa_last_error();
  EXPECT_EQ(plan.runs, 1);
  EXPECT_EQ(plan.workspace_size, bytes);
  EXPECT_TRUE(call.untouched()) << "a query wrote something";
  EXPECT_EQ(fa_forward(call.given, call.version, call.stream), FA_OK) << fa_last_error();
  EXPECT_EQ(call.untouched(), !GetParam().writes);
}

INSTANTIATE_TEST_SUITE_P(Host, Accepts, testing::ValuesIn(good_inputs()),
                         [](const testing::TestParamInfo<GoodInput>& of) { return of.param.name; });

// Shorter structs, as older headers had them: what they lack is at its default.
TEST(StructSizes, ShorterStructsMeanDefaults) {
  const std::size_t ends[] = {
      offsetof(fa_forward_args, lse),
      offsetof(fa_forward_args, mask),
      offsetof(fa_forward_args, scale),
      offsetof(fa_forward_args, threads),
      offsetof(fa_forward_args, workspace),
      offsetof(fa_forward_args, workspace_size),
      sizeof(fa_forward_args),
  };
  Call reference;
  reference.args.lse = nullptr;
  ASSERT_EQ(fa_forward(&reference.args, FA_AUTO, nullptr), FA_OK);
  for (const std::size_t size : ends) {
    SCOPED_TRACE("size " + std::to_string(size));
    Call call;
    call.args.lse = nullptr;
    // A struct of its own length, with what is no field of it spoilt.
    std::vector<unsigned char> bytes(sizeof(fa_forward_args) + 64, 0xff);
    call.args.size = size;
    std::memcpy(bytes.data(), &call.args, size);
    fa_forward_args shorter;
    std::memcpy(&shorter, bytes.data(), sizeof shorter);
    ASSERT_EQ(fa_forward(&shorter, FA_AUTO, nullptr), FA_OK) << fa_last_error();
    EXPECT_EQ(std::memcmp(call.part(3), reference.part(3), Call::kBlock), 0);
  }
}

TEST(StructSizes, InitTakesTheSameSizes) {
  fa_forward_args args;
  for (const std::size_t size :
       {offsetof(fa_forward_args, lse), offsetof(fa_forward_args, mask), sizeof args}) {
    std::memset(&args, 0xff, sizeof args);
    ASSERT_EQ(fa_forward_args_init(&args, size), FA_OK) << size;
    EXPECT_EQ(args.size, size);
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&args);
    for (std::size_t i = size; i < sizeof args; ++i) ASSERT_EQ(bytes[i], 0xff) << "wrote past " << size;
  }
  EXPECT_EQ(args.mask.left, -1);
  EXPECT_EQ(args.mask.right, -1);
  EXPECT_EQ(args.mask.alignment, FA_BOTTOM_RIGHT);
  EXPECT_EQ(args.scale_is_set, 0);
  EXPECT_EQ(args.threads, 0);
  EXPECT_EQ(args.lse, nullptr);
  EXPECT_EQ(args.workspace, nullptr);
  EXPECT_EQ(args.q.stride[3], 1);
  EXPECT_EQ(args.q.dtype, FA_DTYPE_NONE);

  EXPECT_EQ(fa_forward_args_init(nullptr, sizeof args), FA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fa_last_error()).find("args is null"), std::string::npos);
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof args - 1}) {
    std::memset(&args, 0xff, sizeof args);
    EXPECT_EQ(fa_forward_args_init(&args, size), FA_INVALID_ARGUMENT) << size;
    EXPECT_NE(std::string(fa_last_error()).find("args.size = " + std::to_string(size)), std::string::npos);
    EXPECT_EQ(args.size, std::numeric_limits<std::size_t>::max()) << "written for size " << size;
  }
}

// A newer header's longer struct: the fields unknown here are set to zero, which is their default.
TEST(StructSizes, InitZeroesWhatItDoesNotKnow) {
  Call call;
  std::memset(&call.newer, 0xff, sizeof call.newer);
  ASSERT_EQ(fa_forward_args_init(&call.newer.args, sizeof call.newer), FA_OK) << fa_last_error();
  EXPECT_EQ(call.newer.args.size, sizeof call.newer);
  EXPECT_EQ(call.newer.args.mask.left, -1);
  for (const unsigned char byte : call.newer.tail) ASSERT_EQ(byte, 0);
}

// ---- sharing, against the elements one by one
// -----------------------------------------------------------------

struct Layout4 {
  std::int64_t base = 0;  // bytes from the start
  std::int64_t width = 4;
  std::int64_t size[4] = {1, 1, 1, 1};
  std::int64_t stride[3] = {0, 0, 0};

  // Every byte of every element; false where two elements share one.
  bool bytes(std::set<std::int64_t>& to) const {
    bool once = true;
    for (std::int64_t b = 0; b < size[0]; ++b)
      for (std::int64_t h = 0; h < size[1]; ++h)
        for (std::int64_t s = 0; s < size[2]; ++s)
          for (std::int64_t d = 0; d < size[3]; ++d) {
            const std::int64_t first = base + (b * stride[0] + h * stride[1] + s * stride[2] + d) * width;
            for (std::int64_t i = 0; i < width; ++i) once = to.insert(first + i).second && once;
          }
    return once;
  }
  fa_tensor tensor(unsigned char* memory, fa_dtype dtype) const {
    return {
        memory + base, dtype, 0, {size[0], size[1], size[2], size[3]}, {stride[0], stride[1], stride[2], 1}};
  }
};

TEST(Sharing, AgreesWithTheElementsOneByOne) {
  std::mt19937 random(20220527);
  const auto upto = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(n + 1));
  };
  std::vector<unsigned char> memory(1 << 16);
  unsigned char* base = memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) % 256;
  int self = 0, with_k = 0, with_lse = 0, with_workspace = 0, none = 0;
  for (int round = 0; round < 30000; ++round) {
    Layout4 out, k, lse, workspace;
    const std::int64_t most = round % 3 == 0 ? 8 : 40;  // small strides meet often
    const fa_dtype dtype_out = round % 2 == 0 ? FA_FLOAT32 : FA_FLOAT16;
    out.width = dtype_out == FA_FLOAT32 ? 4 : 2;
    const std::int64_t B = 1 + upto(2), H = 1 + upto(2), M = 1 + upto(3), N = 1 + upto(3), D = 1 + upto(3);
    const std::int64_t out_size[4] = {B, H, M, 1 + upto(4)}, k_size[4] = {B, 1, N, D};
    std::copy(out_size, out_size + 4, out.size);
    std::copy(k_size, k_size + 4, k.size);
    // Half of the outputs nest their dimensions, in some order, with some gap; the others have any strides.
    if (round % 4 < 2) {
      int order[3] = {0, 1, 2};
      std::shuffle(order, order + 3, random);
      std::int64_t step = out.size[3] + upto(6);
      for (const int dim : order) {
        out.stride[dim] = step;
        step = step * out.size[dim] + upto(3);
      }
    } else {
      for (std::int64_t& stride : out.stride) stride = upto(most);
    }
    for (std::int64_t& stride : k.stride) stride = upto(most);
    out.base = 1024 + 4 * upto(60);
    k.base = 1024 + 4 * upto(60);
    lse.size[3] = B * H * M;
    lse.base = 1024 + 4 * upto(200);
    workspace.width = 1;
    workspace.size[3] = 1 + upto(64);
    workspace.base = 256 * (4 + upto(3));

    std::set<std::int64_t> out_bytes, k_bytes, lse_bytes, workspace_bytes;
    const bool once = out.bytes(out_bytes);
    k.bytes(k_bytes), lse.bytes(lse_bytes), workspace.bytes(workspace_bytes);
    const auto meet = [](const std::set<std::int64_t>& a, const std::set<std::int64_t>& b) {
      return std::any_of(a.begin(), a.end(), [&](std::int64_t x) { return b.count(x) != 0; });
    };
    const bool out_k = meet(out_bytes, k_bytes), out_lse = meet(out_bytes, lse_bytes),
               out_ws = meet(out_bytes, workspace_bytes), lse_k = meet(lse_bytes, k_bytes),
               lse_ws = meet(lse_bytes, workspace_bytes), ws_k = meet(workspace_bytes, k_bytes);

    fa_forward_args args;
    ASSERT_EQ(fa_forward_args_init(&args, sizeof args), FA_OK);
    args.out = out.tensor(base, dtype_out);
    args.k = k.tensor(base, FA_FLOAT32);
    args.q = Layout4{32768, 4, {B, H, M, D}, {0, 0, 0}}.tensor(base, FA_FLOAT32);
    args.v = Layout4{32768, 4, {B, 1, N, out.size[3]}, {0, 0, 0}}.tensor(base, FA_FLOAT32);
    args.lse = reinterpret_cast<float*>(base + lse.base);
    args.workspace = base + workspace.base;
    args.workspace_size = static_cast<std::size_t>(workspace.size[3]);
    const fa_status status = fa_forward_explain(&args, FA_AUTO, nullptr, nullptr, 0, nullptr);
    const std::string text = status == FA_OK ? "" : fa_last_error();
    const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };

    const bool shares = !once || out_k || out_lse || out_ws || lse_k || lse_ws || ws_k;
    const std::string where = "round " + std::to_string(round) + ": " + text;
    ASSERT_EQ(status, shares ? FA_INVALID_ARGUMENT : FA_OK) << where;
    ASSERT_FALSE(says("can be decided")) << where;
    none += !shares;
    if (!shares) continue;
    if (says("out shares an element with itself")) {
      ASSERT_TRUE(!once) << where;
      ++self;
    }
    if (says("out shares memory with k")) {
      ASSERT_TRUE(out_k) << where;
      ++with_k;
    }
    if (says("out shares memory with lse")) {
      ASSERT_TRUE(out_lse) << where;
      ++with_lse;
    }
    if (says("out shares memory with workspace")) {
      ASSERT_TRUE(out_ws) << where;
      ++with_workspace;
    }
    if (says("lse shares memory with k")) {
      ASSERT_TRUE(lse_k) << where;
    }
    if (says("lse shares memory with workspace")) {
      ASSERT_TRUE(lse_ws) << where;
    }
    if (says("workspace shares memory with k")) {
      ASSERT_TRUE(ws_k) << where;
    }
  }
  for (const int seen : {self, with_k, with_lse, with_workspace, none}) EXPECT_GE(seen, 300);
}

// ---- the environment
// ------------------------------------------------------------------------------------------

class NumThreads : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* text = std::getenv("FLASHATTN_NUM_THREADS")) before_ = text, was_set_ = true;
  }
  void TearDown() override {
    if (was_set_) {
      setenv("FLASHATTN_NUM_THREADS", before_.c_str(), 1);
    } else {
      unsetenv("FLASHATTN_NUM_THREADS");
    }
  }

 private:
  std::string before_;
  bool was_set_ = false;
};

TEST_F(NumThreads, MalformedIsRefused) {
  for (const char* text : {"x", "2x", "0", "-1", "1.5", "70000", "99999999999999999999", "two"}) {
    Call call;
    setenv("FLASHATTN_NUM_THREADS", text, 1);
    EXPECT_EQ(fa_forward(&call.args, FA_AUTO, nullptr), FA_INVALID_ARGUMENT) << text;
    const std::string said = fa_last_error();
    EXPECT_NE(
        said.find(std::string("FLASHATTN_NUM_THREADS = '") + text + "' must be a number from 1 to 65536"),
        std::string::npos)
        << said;
    EXPECT_TRUE(call.untouched()) << text;
    call.args.threads = 1;  // asked for: the environment is not read
    EXPECT_EQ(fa_forward(&call.args, FA_AUTO, nullptr), FA_OK) << text;
  }
}

TEST_F(NumThreads, IsTheDefault) {
  Call call;
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  setenv("FLASHATTN_NUM_THREADS", "3", 1);
  ASSERT_EQ(fa_forward_explain(&call.args, FA_AUTO, &plan, nullptr, 0, nullptr), FA_OK);
  EXPECT_EQ(plan.threads, 3);
  call.args.threads = 2;
  ASSERT_EQ(fa_forward_explain(&call.args, FA_AUTO, &plan, nullptr, 0, nullptr), FA_OK);
  EXPECT_EQ(plan.threads, 2);
  call.args.threads = 0;
  for (const char* empty : {"", static_cast<const char*>(nullptr)}) {
    if (empty != nullptr) {
      setenv("FLASHATTN_NUM_THREADS", empty, 1);
    } else {
      unsetenv("FLASHATTN_NUM_THREADS");
    }
    ASSERT_EQ(fa_forward_explain(&call.args, FA_AUTO, &plan, nullptr, 0, nullptr), FA_OK);
    EXPECT_GE(plan.threads, 1);
  }
}

}  // namespace
}  // namespace fa::test
