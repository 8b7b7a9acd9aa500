// one_call: one fa_forward call of a given rung and problem, and nothing else between the profiler's start
// and stop. bench/profile/profile.sh runs it under Nsight Compute.
#include <charconv>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "bench/program.hpp"
#include "bench/tools/placed_call.hpp"
#include "bench/work.hpp"
#include "tests/support/problem.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "bench/device/cuda.hpp"
#endif

namespace fa::bench {

namespace {

using test::Problem;
using test::Side;

constexpr const char* kHelp =
    R"(one_call: one call of a rung, for a profiler.

  one_call V1 'fp32 B4 H12 S2048 D64'              one call before the profiler's start, one after it
  one_call V1 'fp32 B4 H12 S2048 D64' --repeat 5   five after it
  one_call --list                                  rungs with a kernel on the device in this build: "V1 fp32"

Prints one line of JSON: what ran, its operations, and the bytes that it must move at the least.
Exit code: 0; 1 where the call fails; 2 for a bad command line; 3 where the rung refuses the problem.
)";

const char* short_name(fa_dtype dtype) {
  return dtype == FA_FLOAT32 ? "fp32" : dtype == FA_FLOAT16 ? "fp16" : "bf16";
}

Version parse_rung(const std::string& word) {
  constexpr Version kAll[] = {V0, V1, V2, V3, V4, V5, V6, V7, V8, CPU, Auto};
  for (const Version version : kAll) {
    if (name_of(version) == word) return version;
  }
  throw UsageError("'" + word + "' is none of V0 ... V8, CPU, Auto");
}

int parse_count(const std::string& word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 1) {
    throw UsageError("--repeat: '" + word + "' is not a positive number");
  }
  return value;
}

void list_device_rows() {
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    detail::check(fa_kernel_info_get(i, &info));
    if (info.pass != FA_PASS_FORWARD || info.version == FA_CPU || info.built == 0) continue;
    std::printf("%s %s\n", name_of(static_cast<Version>(info.version)), short_name(info.dtype));
  }
}

#if defined(FLASHATTN_TEST_CUDA)
void wait() {
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
void profiler_start() {
  check_cuda(cudaProfilerStart(), "cudaProfilerStart");
}
void profiler_stop() {
  check_cuda(cudaProfilerStop(), "cudaProfilerStop");
}
#else
void wait() {}
void profiler_start() {}
void profiler_stop() {}
#endif

int call(Version rung, const Problem& problem, int repeat) {
  const Side side = rung == CPU ? Side::host : Side::device;
  const auto version = static_cast<fa_version>(rung);
  if (side == Side::device && !test::have_device()) throw std::runtime_error("no CUDA device");
  PlacedCall placed(problem, test::make_inputs(problem), side);
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  try {
    placed.supply_workspace(version);
    detail::check(fa_forward_explain(&placed.args(), version, &plan, nullptr, 0, nullptr));
    if (plan.runs == 0) throw Unsupported("no kernel takes it");
  } catch (const Unsupported& refusal) {
    std::cerr << "one_call: " << name_of(rung) << " refuses " << test::to_string(problem) << ": "
              << refusal.what() << '\n';
    return 3;
  }
  // Loads the modules and fills the caches, so that what is profiled is a call like any later one.
  detail::check(fa_forward(&placed.args(), version, nullptr));
  if (side == Side::device) {
    wait();
    profiler_start();
  }
  for (int i = 0; i < repeat; ++i) detail::check(fa_forward(&placed.args(), version, nullptr));
  if (side == Side::device) {
    wait();
    profiler_stop();
  }
  std::printf("{\"rung\": \"%s\", \"dtype\": \"%s\", \"kernel\": \"%s\", \"problem\": \"%s\", ",
              name_of(rung), short_name(static_cast<fa_dtype>(problem.dtype)), plan.kernel,
              test::to_string(problem).c_str());
  std::printf("\"calls\": %d, \"flops\": %.9g, \"least_bytes\": %.9g, \"workspace_bytes\": %zu}\n", repeat,
              problem.flops(), least_bytes(problem), plan.workspace_size);
  return 0;
}

int run(int argc, char** argv) {
  std::vector<std::string> words;
  int repeat = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      std::cout << kHelp;
      return 0;
    }
    if (word == "--list") {
      list_device_rows();
      return 0;
    }
    if (word == "--repeat") {
      if (++i >= argc) throw UsageError("--repeat needs a value");
      repeat = parse_count(argv[i]);
    } else if (word.rfind("--", 0) == 0) {
      throw UsageError("unknown flag '" + word + "'");
    } else {
      words.push_back(word);
    }
  }
  if (words.size() != 2) throw UsageError("a rung and a problem's line are needed");
  return call(parse_rung(words[0]), parse_problem_word("the problem", words[1]), repeat);
}

}  // namespace

}  // namespace fa::bench

int main(int argc, char** argv) {
  return fa::bench::run_program("one_call", fa::bench::run, argc, argv, 1);
}
