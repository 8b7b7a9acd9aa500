#include "bench/baselines/three_pass.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "bench/thread_team.hpp"

namespace fa::bench {

namespace {

/// One head is one thread's.
int useful_threads(const test::Problem& problem, int threads) {
  return static_cast<int>(std::clamp<std::int64_t>(problem.B * problem.H, 1, threads));
}

}  // namespace

ThreePass::ThreePass(const test::Problem& problem, int threads)
    : problem_(problem),
      threads_(useful_threads(problem, threads)),
      scale_(problem.scale.value_or(1.0f / std::sqrt(static_cast<float>(problem.D)))),
      scores_(static_cast<std::size_t>(threads_)) {
  for (auto& scores : scores_) scores.resize(static_cast<std::size_t>(problem.M * problem.N));
  outputs_.out.resize(static_cast<std::size_t>(problem.B * problem.H * problem.M * problem.Dv));
  outputs_.lse.resize(static_cast<std::size_t>(problem.B * problem.H * problem.M));
}

double ThreePass::score_bytes(const test::Problem& problem, int threads) {
  return static_cast<double>(useful_threads(problem, threads)) * static_cast<double>(problem.M) *
         static_cast<double>(problem.N) * sizeof(float);
}

void ThreePass::run(const test::Inputs& inputs) {
  std::atomic<std::int64_t> next = 0;
  const std::int64_t heads = problem_.B * problem_.H;
  run_on_threads(threads_, [&](int thread) {
    for (std::int64_t head = next++; head < heads; head = next++) {
      run_head(inputs, head, scores_[static_cast<std::size_t>(thread)]);
    }
  });
}

void ThreePass::run_head(const test::Inputs& inputs, std::int64_t head, std::vector<float>& scores) {
  const std::int64_t M = problem_.M, N = problem_.N, D = problem_.D, Dv = problem_.Dv;
  const std::int64_t b = head / problem_.H, h = head % problem_.H;
  const std::int64_t key_head = b * problem_.Hk + h / (problem_.H / problem_.Hk);
  const float* q = inputs.q.data() + head * M * D;       // [M, D]
  const float* k = inputs.k.data() + key_head * N * D;   // [N, D]
  const float* v = inputs.v.data() + key_head * N * Dv;  // [N, Dv]
  float* out = outputs_.out.data() + head * M * Dv;      // [M, Dv]
  float* lse = outputs_.lse.data() + head * M;           // [M]
  float* s = scores.data();                              // [M, N]

  // S = scale Q K^T
  for (std::int64_t i = 0; i < M; ++i) {
    const test::KeyRange keys = test::visible_keys(problem_, i);
    for (std::int64_t j = keys.first; j < keys.last; ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < D; ++d) dot += q[i * D + d] * k[j * D + d];
      s[i * N + j] = scale_ * dot;
    }
  }

  // P = softmax(S)
  for (std::int64_t i = 0; i < M; ++i) {
    const test::KeyRange keys = test::visible_keys(problem_, i);
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    for (std::int64_t j = keys.first; j < keys.last; ++j) max = std::max(max, s[i * N + j]);
    for (std::int64_t j = keys.first; j < keys.last; ++j) {
      s[i * N + j] = std::exp(s[i * N + j] - max);
      sum += s[i * N + j];
    }
    for (std::int64_t j = keys.first; j < keys.last; ++j) s[i * N + j] /= sum;
    lse[i] = max + std::log(sum);
  }

  // O = P V
  for (std::int64_t i = 0; i < M; ++i) {
    const test::KeyRange keys = test::visible_keys(problem_, i);
    for (std::int64_t d = 0; d < Dv; ++d) out[i * Dv + d] = 0;
    for (std::int64_t j = keys.first; j < keys.last; ++j) {
      const float p = s[i * N + j];
      for (std::int64_t d = 0; d < Dv; ++d) out[i * Dv + d] += p * v[j * Dv + d];
    }
  }
}

}  // namespace fa::bench
