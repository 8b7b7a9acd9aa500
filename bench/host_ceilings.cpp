#include "bench/host_ceilings.hpp"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "bench/thread_team.hpp"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define FA_X86 1
#include <immintrin.h>
#elif defined(__aarch64__)
#define FA_NEON 1
#include <arm_neon.h>
#endif

namespace fa::bench {

namespace {

/// Makes the compiler believe that `value` is used and may change.
template <class T>
void keep(T& value) {
  asm volatile("" : "+m"(value) : : "memory");
}

/// One exclusive or that waits for the one before it.
void dependent_step(std::uint64_t& x, std::uint64_t y) {
  x ^= y;
  asm volatile("" : "+r"(x));
}

// Twelve independent chains: a latency of four cycles on two ports needs eight. Every chain runs
// x <- x m + c towards c / (1 - m) = 1, so no value overflows or becomes subnormal.
constexpr int kChains = 12;
constexpr float kFactor = 0.5f, kSummand = 0.5f;

#define FA_FMA_LOOP(Vector, set1, fma, store, lanes)                                          \
  const Vector m = set1(kFactor), c = set1(kSummand);                                         \
  Vector x0 = set1(0.1f), x1 = set1(0.2f), x2 = set1(0.3f), x3 = set1(0.4f), x4 = set1(0.5f), \
         x5 = set1(0.6f), x6 = set1(0.7f), x7 = set1(0.8f), x8 = set1(0.9f), x9 = set1(1.1f), \
         x10 = set1(1.2f), x11 = set1(1.3f);                                                  \
  for (long long i = 0; i < iterations; ++i) {                                                \
    x0 = fma(x0, m, c), x1 = fma(x1, m, c), x2 = fma(x2, m, c), x3 = fma(x3, m, c);           \
    x4 = fma(x4, m, c), x5 = fma(x5, m, c), x6 = fma(x6, m, c), x7 = fma(x7, m, c);           \
    x8 = fma(x8, m, c), x9 = fma(x9, m, c), x10 = fma(x10, m, c), x11 = fma(x11, m, c);       \
  }                                                                                           \
  alignas(64) float result[kChains][lanes];                                                   \
  store(result[0], x0), store(result[1], x1), store(result[2], x2), store(result[3], x3);     \
  store(result[4], x4), store(result[5], x5), store(result[6], x6), store(result[7], x7);     \
  store(result[8], x8), store(result[9], x9), store(result[10], x10), store(result[11], x11); \
  keep(result)

float scalar_set(float x) {
  return x;
}
float scalar_fma(float x, float m, float c) {
  return x * m + c;
}
void scalar_store(float* to, float x) {
  *to = x;
}
void fma_scalar(long long iterations) {
  FA_FMA_LOOP(float, scalar_set, scalar_fma, scalar_store, 1);
}

#if defined(FA_X86)
__attribute__((target("avx512f"))) void fma_avx512(long long iterations) {
  FA_FMA_LOOP(__m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_store_ps, 16);
}
__attribute__((target("avx2,fma"))) void fma_avx2(long long iterations) {
  FA_FMA_LOOP(__m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_store_ps, 8);
}
#elif defined(FA_NEON)
float32x4_t neon_fma(float32x4_t x, float32x4_t m, float32x4_t c) {
  return vfmaq_f32(c, x, m);
}
void fma_neon(long long iterations) {
  FA_FMA_LOOP(float32x4_t, vdupq_n_f32, neon_fma, vst1q_f32, 4);
}
#endif

struct FmaLoop {
  const char* vectors;
  int lanes;
  void (*run)(long long iterations);
};

FmaLoop pick_fma_loop() {
#if defined(FA_X86)
  if (__builtin_cpu_supports("avx512f")) return {"AVX-512", 16, fma_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"AVX2", 8, fma_avx2};
#elif defined(FA_NEON)
  return {"NEON", 4, fma_neon};
#endif
  return {"scalar", 1, fma_scalar};
}

const FmaLoop& fma_loop() {
  static const FmaLoop loop = pick_fma_loop();
  return loop;
}

/// Sums a slice in 64 lanes, so that memory, not the additions' latency, is the limit.
float sum(const float* data, std::size_t count) {
  constexpr std::size_t kLanes = 64;
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += data[i + l];
  }
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

struct Slice {
  std::size_t begin, count;
};

Slice slice_of(std::size_t count, int threads, int thread) {
  const auto n = static_cast<std::size_t>(threads), t = static_cast<std::size_t>(thread);
  const std::size_t begin = count * t / n;
  return {begin, count * (t + 1) / n - begin};
}

}  // namespace

double fma_flops_per_iteration() {
  return 2.0 * kChains * fma_loop().lanes;
}

double run_fma(long long iterations) {
  fma_loop().run(iterations);
  return fma_flops_per_iteration() * static_cast<double>(iterations);
}

const char* fma_vectors() {
  return fma_loop().vectors;
}

double core_clock() {
  constexpr std::int64_t kSteps = 1'000'000;  // short: whole attempts escape the scheduler
  double best = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    std::uint64_t x = 1, y = 0x9e3779b97f4a7c15u;
    asm volatile("" : "+r"(x), "+r"(y));
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < kSteps; i += 8) {
      // An exclusive or of two registers takes one cycle wherever it is not an idiom for zero.
      dependent_step(x, y), dependent_step(x, y), dependent_step(x, y), dependent_step(x, y);
      dependent_step(x, y), dependent_step(x, y), dependent_step(x, y), dependent_step(x, y);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(kSteps) / seconds);
  }
  return best;
}

std::size_t streaming_bytes() {
  constexpr std::size_t kLeast = std::size_t{64} << 20, kMost = std::size_t{256} << 20;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  const long cache = 0;
#endif
  return std::clamp(2 * static_cast<std::size_t>(std::max(cache, 0L)), kLeast, kMost);
}

StreamBuffers::StreamBuffers()
    : from_(streaming_bytes() / 2 / sizeof(float), 1.0f), to_(streaming_bytes() / 2 / sizeof(float), 2.0f) {}

void StreamBuffers::read(int threads) {
  run_on_threads(threads, [&](int thread) {
    const Slice slice = slice_of(from_.size(), threads, thread);
    float total = sum(from_.data() + slice.begin, slice.count) + sum(to_.data() + slice.begin, slice.count);
    keep(total);
  });
}

void StreamBuffers::copy(int threads) {
  run_on_threads(threads, [&](int thread) {
    const Slice slice = slice_of(from_.size(), threads, thread);
    std::memcpy(to_.data() + slice.begin, from_.data() + slice.begin, slice.count * sizeof(float));
  });
}

double StreamBuffers::bytes() const {
  return static_cast<double>((from_.size() + to_.size()) * sizeof(float));
}

}  // namespace fa::bench
