/// The C interface: what a program that loads the library by hand can rely on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <flashattn/flashattn.hpp>

namespace fa::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A valid call on the host with memory of its own.
struct HostCall {
  static constexpr std::int64_t kB = 2, kH = 4, kHk = 2, kM = 33, kN = 50, kD = 16;
  std::vector<float> q, k, v, out, lse;
  fa_forward_args args;

  HostCall()
      : q(kB * kH * kM * kD, 0.25f),
        k(kB * kHk * kN * kD, 0.5f),
        v(kB * kHk * kN * kD, 2.0f),
        out(q.size(), -1.0f),
        lse(kB * kH * kM, -1.0f) {
    EXPECT_EQ(fa_forward_args_init(&args, sizeof args), FA_OK);
    args.q = tensor(q.data(), kH, kM);
    args.k = tensor(k.data(), kHk, kN);
    args.v = tensor(v.data(), kHk, kN);
    args.out = tensor(out.data(), kH, kM);
    args.lse = lse.data();
    args.threads = 1;
  }
  static fa_tensor tensor(float* data, std::int64_t heads, std::int64_t S) {
    return {data, FA_FLOAT32, 0, {kB, heads, S, kD}, {heads * S * kD, S * kD, kD, 1}};
  }
};

std::string explain_text(const fa_forward_args& args, fa_version version, fa_forward_plan* plan = nullptr) {
  std::size_t length = 0;
  EXPECT_EQ(fa_forward_explain(&args, version, plan, nullptr, 0, &length), FA_OK) << fa_last_error();
  std::string text(length + 1, '?');
  EXPECT_EQ(fa_forward_explain(&args, version, plan, text.data(), text.size(), nullptr), FA_OK);
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  EXPECT_EQ(std::strlen(text.c_str()), length);
  return text;
}

TEST(CApi, Versions) {
  EXPECT_EQ(fa_version_number(), FLASHATTN_VERSION);
  EXPECT_EQ(std::string(fa_version_string()), std::to_string(FLASHATTN_VERSION_MAJOR) + "." +
                                                  std::to_string(FLASHATTN_VERSION_MINOR) + "." +
                                                  std::to_string(FLASHATTN_VERSION_PATCH));
}

TEST(CApi, StatusNames) {
  const std::pair<fa_status, const char*> names[] = {
      {FA_OK, "FA_OK"},
      {FA_INVALID_ARGUMENT, "FA_INVALID_ARGUMENT"},
      {FA_UNSUPPORTED, "FA_UNSUPPORTED"},
      {FA_OUT_OF_MEMORY, "FA_OUT_OF_MEMORY"},
      {FA_CUDA_ERROR, "FA_CUDA_ERROR"},
      {FA_INTERNAL_ERROR, "FA_INTERNAL_ERROR"},
      {6, "unknown fa_status"},
      {-1, "unknown fa_status"},
      {1 << 30, "unknown fa_status"},
  };
  for (const auto& [status, name] : names) EXPECT_STREQ(fa_status_name(status), name);
}

TEST(CApi, ForwardWritesEverything) {
  HostCall call;
  ASSERT_EQ(fa_forward(&call.args, FA_CPU, nullptr), FA_OK) << fa_last_error();
  for (const float o : call.out) ASSERT_EQ(o, 2.0f);
  for (const float l : call.lse) ASSERT_NEAR(l, 0.125f * 16 / 4 + 3.912023f, 1e-5f);
}

// A call that succeeds leaves the text of the last failure where it is, each thread its own.
TEST(CApi, LastErrorIsTheThreadsOwn) {
  std::thread([] { EXPECT_STREQ(fa_last_error(), ""); }).join();

  fa_forward_args args;
  ASSERT_EQ(fa_forward_args_init(nullptr, sizeof args), FA_INVALID_ARGUMENT);
  const std::string mine = fa_last_error();
  EXPECT_TRUE(contains(mine, "args is null")) << mine;
  std::thread([] {
    EXPECT_STREQ(fa_last_error(), "");
    HostCall call;
    call.args.threads = -5;
    EXPECT_EQ(fa_forward(&call.args, FA_AUTO, nullptr), FA_INVALID_ARGUMENT);
    EXPECT_TRUE(contains(fa_last_error(), "threads = -5")) << fa_last_error();
  }).join();
  EXPECT_EQ(fa_last_error(), mine);

  HostCall call;
  ASSERT_EQ(fa_forward(&call.args, FA_AUTO, nullptr), FA_OK);
  EXPECT_EQ(fa_last_error(), mine);
}

TEST(CApi, ManyThreadsKeepTheirErrorsApart) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      HostCall call;
      for (int round = 0; round < 500; ++round) {
        call.args.mask.left = -2 - t - 4 * round;
        const bool refused = fa_forward(&call.args, FA_AUTO, nullptr) == FA_INVALID_ARGUMENT;
        const std::string want = "mask.left = " + std::to_string(call.args.mask.left) + " must";
        if (!refused || !contains(fa_last_error(), want)) ++wrong[static_cast<std::size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// ---- explain
// --------------------------------------------------------------------------------------------------

TEST(CApi, ExplainSaysWhatRuns) {
  HostCall call;
  call.args.mask = {-1, 0, FA_BOTTOM_RIGHT, 0};
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  for (const fa_version version : {FA_AUTO, FA_CPU}) {
    const std::string text = explain_text(call.args, version, &plan);
    for (const char* part : {"float32", "B2", "H4/2", "M33", "N50", "D16", "causal", "host memory",
                             "runs: CPU (cpu_fp32)", "1 threads", "workspace"}) {
      EXPECT_TRUE(contains(text, part)) << part << " is not in:\n" << text;
    }
    EXPECT_EQ(plan.size, sizeof plan);
    EXPECT_EQ(plan.runs, 1);
    EXPECT_EQ(plan.version, FA_CPU);
    EXPECT_EQ(plan.placement, FA_ON_HOST);
    EXPECT_EQ(plan.device, -1);
    EXPECT_EQ(plan.threads, 1);
    EXPECT_STREQ(plan.kernel, "cpu_fp32");
    std::size_t bytes = 0;
    ASSERT_EQ(fa_forward_workspace_size(&call.args, version, &bytes), FA_OK);
    EXPECT_EQ(plan.workspace_size, bytes);
    EXPECT_TRUE(contains(text, std::to_string(bytes) + " bytes")) << text;
  }
  for (const float o : call.out) ASSERT_EQ(o, -1.0f) << "explain ran the problem";
}

TEST(CApi, ExplainNamesTheMask) {
  HostCall call;
  const std::pair<fa_mask, const char*> masks[] = {
      {{-1, -1, FA_BOTTOM_RIGHT, 0}, "full"},
      {{-1, 0, FA_BOTTOM_RIGHT, 0}, "causal"},
      {{-1, 0, FA_TOP_LEFT, 0}, "causal top-left"},
      {{7, 2, FA_BOTTOM_RIGHT, 0}, "window(7, 2)"},
      {{-1, 3, FA_TOP_LEFT, 0}, "window(-1, 3) top-left"},
  };
  for (const auto& [mask, name] : masks) {
    call.args.mask = mask;
    EXPECT_TRUE(contains(explain_text(call.args, FA_AUTO), std::string(" ") + name)) << name;
  }
}

TEST(CApi, ExplainWithoutWork) {
  HostCall call;
  call.args.q.size[2] = call.args.out.size[2] = 0;
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  EXPECT_TRUE(contains(explain_text(call.args, FA_AUTO, &plan), "nothing to do"));
  EXPECT_EQ(plan.runs, 1);
  EXPECT_EQ(plan.workspace_size, 0u);
}

TEST(CApi, ExplainTruncatesAtEverySize) {
  HostCall call;
  const std::string whole = explain_text(call.args, FA_AUTO);
  ASSERT_GT(whole.size(), 40u);
  for (std::size_t size = 0; size <= whole.size() + 3; ++size) {
    std::vector<char> text(whole.size() + 8, '#');
    std::size_t length = 0;
    ASSERT_EQ(
        fa_forward_explain(&call.args, FA_AUTO, nullptr, size == 0 ? nullptr : text.data(), size, &length),
        FA_OK);
    ASSERT_EQ(length, whole.size());
    const std::size_t copied = size == 0 ? 0 : std::min(size - 1, whole.size());
    ASSERT_EQ(std::string(text.data(), copied), whole.substr(0, copied));
    const std::size_t end = size == 0 ? 0 : copied + 1;
    ASSERT_TRUE(size == 0 || text[copied] == '\0') << size;
    for (std::size_t i = end; i < text.size(); ++i)
      ASSERT_EQ(text[i], '#') << "wrote at " << i << " of " << size;
  }
  // A buffer, but no room in it; no wish for the length.
  char one = '#';
  EXPECT_EQ(fa_forward_explain(&call.args, FA_AUTO, nullptr, &one, 0, nullptr), FA_OK);
  EXPECT_EQ(one, '#');
}

TEST(CApi, ExplainRefusesASizeWithoutABuffer) {
  HostCall call;
  std::size_t length = 5;
  EXPECT_EQ(fa_forward_explain(&call.args, FA_AUTO, nullptr, nullptr, 10, &length), FA_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(fa_last_error(), "text is null but text_size = 10")) << fa_last_error();
  EXPECT_EQ(length, 5u);
}

// Writes no byte of a struct beyond the size its caller gave.
template <class Info, class Get>
void expect_prefixes(Get get) {
  Info whole;
  std::memset(&whole, 0, sizeof whole);
  whole.size = sizeof whole;
  ASSERT_EQ(get(&whole), FA_OK) << fa_last_error();
  for (std::size_t size = sizeof(std::size_t); size <= sizeof(Info); size += 4) {
    Info part;
    std::memset(&part, 0xab, sizeof part);
    part.size = size;
    ASSERT_EQ(get(&part), FA_OK) << fa_last_error();
    EXPECT_EQ(part.size, size);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&part);
    const auto* all = reinterpret_cast<const unsigned char*>(&whole);
    EXPECT_EQ(std::memcmp(bytes + sizeof(std::size_t), all + sizeof(std::size_t), size - sizeof(std::size_t)),
              0)
        << size;
    for (std::size_t i = size; i < sizeof part; ++i)
      ASSERT_EQ(bytes[i], 0xab) << "wrote at " << i << " of " << size;
  }
  // A newer caller's larger struct: what this library does not know stays.
  struct {
    Info info;
    unsigned char tail[32];
  } larger;
  std::memset(&larger, 0xab, sizeof larger);
  larger.info.size = sizeof larger;
  ASSERT_EQ(get(&larger.info), FA_OK) << fa_last_error();
  EXPECT_EQ(larger.info.size, sizeof larger);
  for (const unsigned char byte : larger.tail) ASSERT_EQ(byte, 0xab);
  for (const std::size_t size : {std::size_t{0}, sizeof(std::size_t) - 1}) {
    Info none;
    std::memset(&none, 0xab, sizeof none);
    none.size = size;
    EXPECT_EQ(get(&none), FA_INVALID_ARGUMENT) << size;
    EXPECT_TRUE(contains(fa_last_error(), ".size = " + std::to_string(size))) << fa_last_error();
    const auto* bytes = reinterpret_cast<const unsigned char*>(&none);
    for (std::size_t i = sizeof(std::size_t); i < sizeof none; ++i) ASSERT_EQ(bytes[i], 0xab);
  }
}

TEST(CApi, InfoStructsOfAnySize) {
  HostCall call;
  expect_prefixes<fa_forward_plan>([&](fa_forward_plan* plan) {
    return fa_forward_explain(&call.args, FA_AUTO, plan, nullptr, 0, nullptr);
  });
  expect_prefixes<fa_kernel_info>([](fa_kernel_info* info) { return fa_kernel_info_get(0, info); });
  expect_prefixes<fa_build_info>([](fa_build_info* info) { return fa_build_info_get(info); });
}

// ---- the kernel table
// -----------------------------------------------------------------------------------------

template <Pass P, Version V>
void note_existing(std::map<std::tuple<fa_pass, fa_version, fa_dtype>, bool>& to) {
  const auto pass = static_cast<fa_pass>(P);
  const auto version = static_cast<fa_version>(V);
  to[{pass, version, FA_FLOAT32}] = exists<V, float, P>;
  to[{pass, version, FA_FLOAT16}] = exists<V, half, P>;
  to[{pass, version, FA_BFLOAT16}] = exists<V, bfloat16, P>;
}

template <Pass P, Version... V>
void note_all(std::map<std::tuple<fa_pass, fa_version, fa_dtype>, bool>& to) {
  (note_existing<P, V>(to), ...);
}

TEST(CApi, TheTableIsWhatExistsSays) {
  std::map<std::tuple<fa_pass, fa_version, fa_dtype>, bool> said;
  note_all<Pass::forward, V0, V1, V2, V3, V4, V5, V6, V7, V8, CPU>(said);
  note_all<Pass::backward, V0, V1, V2, V3, V4, V5, V6, V7, V8, CPU>(said);
  std::map<std::string, int> names;
  std::map<std::tuple<fa_pass, fa_version, fa_dtype>, bool> listed;
  ASSERT_GE(fa_kernel_count(), 3);
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(fa_kernel_info_get(i, &info), FA_OK) << fa_last_error();
    ASSERT_NE(info.name, nullptr);
    ASSERT_NE(info.limits, nullptr);
    EXPECT_STRNE(info.limits, "");
    EXPECT_EQ(names[info.name]++, 0) << info.name << " is there twice";
    EXPECT_TRUE(info.built == 0 || info.built == 1);
    const std::tuple key{info.pass, info.version, info.dtype};
    EXPECT_FALSE(listed[key]) << info.name << " has the pair of another row";
    listed[key] = true;
    EXPECT_TRUE(said.count(key) == 1 && said[key]) << info.name << " is not in fa::exists";
  }
  for (const auto& [key, is] : said) {
    EXPECT_EQ(is, listed.count(key) == 1) << name_of(static_cast<Version>(std::get<1>(key))) << " for "
                                          << name_of(static_cast<Dtype>(std::get<2>(key)));
  }
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(fa_kernel_info_get(i, &info), FA_OK);
    if (info.stand_in != nullptr) {
      EXPECT_EQ(names.count(info.stand_in), 1u) << info.name << "'s stand-in is no row";
      EXPECT_STRNE(info.stand_in, info.name);
    }
  }
}

// Rows of fp32 whose tiles hold one head size leave the rest to V2, and so does V7; V8 leaves it to V7; V4 to
// V6 in 16 bits reject it.
TEST(CApi, TheStandInsOfTheTable) {
  std::map<std::string, std::string> stand_ins;
  std::map<std::string, fa_kernel_info> infos;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(fa_kernel_info_get(i, &info), FA_OK);
    stand_ins[info.name] = info.stand_in == nullptr ? "" : info.stand_in;
    infos[info.name] = info;
  }
  for (const char* row : {"v3_warp_local", "v4_vectorized_fp32"}) {
    EXPECT_EQ(stand_ins[row], "v2_flash2_fp32") << row;
  }
  EXPECT_EQ(stand_ins["v7_ampere_fp16"], "v2_flash2_fp16");
  EXPECT_EQ(stand_ins["v7_ampere_bf16"], "v2_flash2_bf16");
  EXPECT_EQ(stand_ins["v8_hopper_fp16"], "v7_ampere_fp16");
  EXPECT_EQ(stand_ins["v8_hopper_bf16"], "v7_ampere_bf16");
  for (const char* row : {"v0_unfused",
                          "v1_flash1",
                          "v2_flash2_fp32",
                          "v2_flash2_fp16",
                          "v2_flash2_bf16",
                          "v4_vectorized_fp16",
                          "v4_vectorized_bf16",
                          "v5_tensor_cores_fp16",
                          "v5_tensor_cores_bf16",
                          "v6_fast_softmax_fp16",
                          "v6_fast_softmax_bf16",
                          "cpu_fp32",
                          "cpu_fp16",
                          "cpu_bf16",
                          "v2_backward_fp32",
                          "v2_backward_fp16",
                          "v2_backward_bf16",
                          "cpu_backward_fp32",
                          "cpu_backward_fp16",
                          "cpu_backward_bf16"}) {
    ASSERT_EQ(stand_ins.count(row), 1u) << row << " is no row";
    EXPECT_EQ(stand_ins[row], "") << row;
  }
  // A stand-in computes what was asked for, and the last of a chain leaves nothing to another.
  for (const auto& [name, stand_in] : stand_ins) {
    if (stand_in.empty()) continue;
    ASSERT_EQ(infos.count(stand_in), 1u) << name;
    EXPECT_EQ(infos[stand_in].pass, infos[name].pass) << name;
    EXPECT_EQ(infos[stand_in].dtype, infos[name].dtype) << name;
    std::string last = stand_in;
    for (std::size_t steps = 0; !stand_ins[last].empty(); last = stand_ins[last]) {
      ASSERT_LT(++steps, stand_ins.size()) << name << " stands in for itself";
    }
  }
}

TEST(CApi, TheCpuBackendIsAlwaysBuilt) {
  int rows = 0;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    ASSERT_EQ(fa_kernel_info_get(i, &info), FA_OK);
    if (info.version != FA_CPU) continue;
    ++rows;
    EXPECT_EQ(info.built, 1) << info.name;
  }
  EXPECT_GE(rows, 3);
}

TEST(CApi, NoSuchRow) {
  fa_kernel_info info = {};
  info.size = sizeof info;
  for (const std::int32_t index : {-1, fa_kernel_count(), 1 << 30, -(1 << 30)}) {
    EXPECT_EQ(fa_kernel_info_get(index, &info), FA_INVALID_ARGUMENT);
    const std::string text = fa_last_error();
    EXPECT_TRUE(contains(text, "index = " + std::to_string(index) + " must be from 0 to " +
                                   std::to_string(fa_kernel_count() - 1)))
        << text;
    EXPECT_EQ(info.name, nullptr);
  }
  EXPECT_EQ(fa_kernel_info_get(0, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(fa_last_error(), "info is null")) << fa_last_error();
}

// A row of a device says so on the host; a pair that is no row says that.
TEST(CApi, NamedRowsThatCannotRun) {
  HostCall call;
  const std::vector<float> before = call.out;
  for (const fa_version version : {FA_V0, FA_V1, FA_V2, FA_V3, FA_V4, FA_V5, FA_V6, FA_V7, FA_V8}) {
    EXPECT_EQ(fa_forward(&call.args, version, nullptr), FA_UNSUPPORTED) << version;
    const std::string text = fa_last_error();
    EXPECT_TRUE(contains(text, name_of(static_cast<Version>(version)))) << text;
    EXPECT_TRUE(contains(text, "does not exist for float32") || contains(text, "host memory") ||
                contains(text, "left its code out"))
        << text;
    EXPECT_EQ(call.out, before);
  }
}

// ---- workspace, prepare, build
// --------------------------------------------------------------------------------

TEST(CApi, WorkspaceOfTheExactSize) {
  HostCall call;
  ASSERT_EQ(fa_forward(&call.args, FA_AUTO, nullptr), FA_OK);
  const std::vector<float> want = call.out;
  for (const std::int32_t threads : {1, 2, 3}) {
    call.args.threads = threads;
    call.args.workspace = nullptr;
    call.args.workspace_size = 0;
    std::size_t bytes = 0;
    ASSERT_EQ(fa_forward_workspace_size(&call.args, FA_AUTO, &bytes), FA_OK);
    ASSERT_GT(bytes, 0u);
    constexpr std::size_t kGuard = 4096;
    auto* memory = static_cast<unsigned char*>(::operator new (bytes + 2 * kGuard, std::align_val_t{256}));
    std::memset(memory, 0xff, bytes + 2 * kGuard);
    call.args.workspace = memory + kGuard;
    call.args.workspace_size = bytes;
    std::fill(call.out.begin(), call.out.end(), -1.0f);
    EXPECT_EQ(fa_forward(&call.args, FA_AUTO, nullptr), FA_OK) << fa_last_error();
    EXPECT_EQ(call.out, want);
    for (std::size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(memory[i], 0xff);
      ASSERT_EQ(memory[kGuard + bytes + i], 0xff);
    }
    ::operator delete (memory, std::align_val_t{256});
  }
}

TEST(CApi, WorkspaceQueryWantsSomewhereToWrite) {
  HostCall call;
  EXPECT_EQ(fa_forward_workspace_size(&call.args, FA_AUTO, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(fa_last_error(), "bytes is null")) << fa_last_error();
}

TEST(CApi, PrepareWritesNothing) {
  HostCall call;
  const std::vector<float> before = call.out;
  EXPECT_EQ(fa_forward_prepare(&call.args, FA_AUTO), FA_OK) << fa_last_error();
  EXPECT_EQ(fa_forward_prepare(&call.args, FA_CPU), FA_OK) << fa_last_error();
  EXPECT_EQ(call.out, before);
}

TEST(CApi, BuildInfo) {
  fa_build_info info = {};
  info.size = sizeof info;
  ASSERT_EQ(fa_build_info_get(&info), FA_OK);
  EXPECT_EQ(info.version, fa_version_number());
  EXPECT_GE(info.cuda, 0);
  for (const char* text : {info.architectures, info.simd, info.simd_target, info.compiler, info.build_type}) {
    ASSERT_NE(text, nullptr);
  }
  EXPECT_EQ(info.cuda == 0, std::string(info.architectures).empty());
  EXPECT_TRUE(contains(info.simd, "highway") || std::string(info.simd) == "plain") << info.simd;
  EXPECT_STRNE(info.simd_target, "");
  EXPECT_STRNE(info.compiler, "");
  EXPECT_EQ(fa_build_info_get(nullptr), FA_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace fa::test
