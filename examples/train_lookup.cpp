// Trains one attention layer, end to end through fa::forward and fa::backward, to look values up: a sequence
// holds pairs of a key and a value, a query names a key, and the answer is the value that stands beside it.
// Nothing tells the layer which features are the key's; the three projections Wq, Wk and Wv learn it by plain
// gradient descent.
//
// Runs on the CPU and, where there is a CUDA device, there too: with managed memory the code is the same, and
// the library goes where the pointers point. Both must learn, and agree.
#include <flashattn/flashattn.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <vector>

#if defined(EXAMPLE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace {

constexpr int kBatch = 32;                      // sequences a step
constexpr int kPairs = 8;                       // keys, and so pairs and queries of a sequence
constexpr int kValue = 4;                       // features of a value
constexpr int kPairFeatures = kPairs + kValue;  // a key, one-hot, and its value
constexpr int kHeadDim = 16;
constexpr int kRows = kBatch * kPairs;
constexpr int kSteps = 400;
constexpr float kLearningRate = 4.0f;

enum class Where { host, device };

struct Free {
  Where where;
  void operator()(float* data) const {
#if defined(EXAMPLE_WITH_CUDA)
    if (where == Where::device) {
      cudaFree(data);
      return;
    }
#endif
    std::free(data);
  }
};

// Numbers that this program can touch, and that the attention finds on its side.
class Floats {
 public:
  Floats(Where where, int count) : count_(count), data_(allocate(where, count), Free{where}) {
    std::fill(begin(), end(), 0.0f);
  }
  float* begin() const { return data_.get(); }
  float* end() const { return data_.get() + count_; }
  float& operator[](int i) const { return data_[static_cast<std::size_t>(i)]; }

 private:
  static float* allocate(Where where, int count) {
    void* memory = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
#if defined(EXAMPLE_WITH_CUDA)
    if (where == Where::device) {
      if (cudaMallocManaged(&memory, bytes) != cudaSuccess) throw std::bad_alloc();
      return static_cast<float*>(memory);
    }
#else
    static_cast<void>(where);
#endif
    memory = std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<float*>(memory);
  }

  int count_;
  std::unique_ptr<float[], Free> data_;
};

// Device calls are asynchronous: before the host reads what they wrote, it waits.
void wait(Where where) {
#if defined(EXAMPLE_WITH_CUDA)
  if (where == Where::device && cudaDeviceSynchronize() != cudaSuccess) {
    throw fa::CudaError("the device failed while training");
  }
#else
  static_cast<void>(where);
#endif
}

// to[rows][out] = from[rows][in] weights[in][out]
void project(const Floats& from, const Floats& weights, int in, int out, const Floats& to) {
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < out; ++o) {
      float sum = 0;
      for (int i = 0; i < in; ++i) sum += from[r * in + i] * weights[i * out + o];
      to[r * out + o] = sum;
    }
  }
}

// weights[in][out] -= rate * from[rows][in]^T gradient[rows][out]: a step down the loss.
void descend(const Floats& from, const Floats& gradient, int in, int out, const Floats& weights) {
  for (int i = 0; i < in; ++i) {
    for (int o = 0; o < out; ++o) {
      float sum = 0;
      for (int r = 0; r < kRows; ++r) sum += from[r * in + i] * gradient[r * out + o];
      weights[i * out + o] -= kLearningRate * sum;
    }
  }
}

// The same numbers on every platform: the standard library's distributions are not.
float uniform(std::mt19937& random) {  // in [-1, 1)
  return static_cast<float>(random() >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

void randomise(const Floats& weights, int in, std::mt19937& random) {
  for (float& w : weights) w = uniform(random) * std::sqrt(3.0f / static_cast<float>(in));
}

// Trains from scratch and returns the loss of every step: the mean square of what is wrong with an answer's
// feature.
std::vector<float> train(Where where) {
  std::mt19937 random(2017);
  const Floats pairs(where, kRows * kPairFeatures);  // [B, pairs, key and value]
  const Floats asked(where, kRows * kPairs);         // [B, queries, key]
  const Floats answers(where, kRows * kValue);       // [B, queries, value]
  const Floats wq(where, kPairs * kHeadDim), wk(where, kPairFeatures * kHeadDim),
      wv(where, kPairFeatures * kValue);
  randomise(wq, kPairs, random);
  randomise(wk, kPairFeatures, random);
  randomise(wv, kPairFeatures, random);

  const Floats q(where, kRows * kHeadDim), k(where, kRows * kHeadDim), v(where, kRows * kValue);
  const Floats out(where, kRows * kValue), lse(where, kRows), dout(where, kRows * kValue);
  const Floats dq(where, kRows * kHeadDim), dk(where, kRows * kHeadDim), dv(where, kRows * kValue);

  fa::ForwardArgs<float> forward;
  forward.q = fa::bhsd(q.begin(), kBatch, 1, kPairs, kHeadDim);
  forward.k = fa::bhsd(k.begin(), kBatch, 1, kPairs, kHeadDim);
  forward.v = fa::bhsd(v.begin(), kBatch, 1, kPairs, kValue);
  forward.out = fa::bhsd(out.begin(), kBatch, 1, kPairs, kValue);
  forward.lse = lse.begin();

  fa::BackwardArgs<float> backward;
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.out = forward.out;
  backward.lse = forward.lse;
  backward.dout = fa::bhsd(dout.begin(), kBatch, 1, kPairs, kValue);
  backward.dq = fa::bhsd(dq.begin(), kBatch, 1, kPairs, kHeadDim);
  backward.dk = fa::bhsd(dk.begin(), kBatch, 1, kPairs, kHeadDim);
  backward.dv = fa::bhsd(dv.begin(), kBatch, 1, kPairs, kValue);
  std::printf("%s%s", fa::explain(forward).text.c_str(), fa::explain(backward).text.c_str());

  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    // Every sequence lists all keys, in an order of its own, with fresh values; query i asks for key i.
    std::fill(pairs.begin(), pairs.end(), 0.0f);
    std::fill(asked.begin(), asked.end(), 0.0f);
    for (int b = 0; b < kBatch; ++b) {
      int place[kPairs] = {};
      for (int i = 0; i < kPairs; ++i) {
        const int other = static_cast<int>(random() % static_cast<unsigned>(i + 1));
        place[i] = place[other];
        place[other] = i;
      }
      for (int key = 0; key < kPairs; ++key) {
        const int row = b * kPairs + place[key];
        pairs[row * kPairFeatures + key] = 1;
        asked[(b * kPairs + key) * kPairs + key] = 1;
        for (int f = 0; f < kValue; ++f) {
          const float value = uniform(random);
          pairs[row * kPairFeatures + kPairs + f] = value;
          answers[(b * kPairs + key) * kValue + f] = value;
        }
      }
    }

    project(asked, wq, kPairs, kHeadDim, q);
    project(pairs, wk, kPairFeatures, kHeadDim, k);
    project(pairs, wv, kPairFeatures, kValue, v);
    fa::forward(forward);
    wait(where);

    float loss = 0;
    for (int i = 0; i < kRows * kValue; ++i) {
      const float wrong = out[i] - answers[i];
      loss += wrong * wrong / (kRows * kValue);
      dout[i] = 2 * wrong / (kRows * kValue);
    }
    losses.push_back(loss);

    fa::backward(backward);
    wait(where);
    descend(asked, dq, kPairs, kHeadDim, wq);
    descend(pairs, dk, kPairFeatures, kHeadDim, wk);
    descend(pairs, dv, kPairFeatures, kValue, wv);
  }
  return losses;
}

bool learned(const char* name, const std::vector<float>& losses) {
  for (const int step : {0, kSteps / 8, kSteps / 4, kSteps / 2, kSteps - 1}) {
    std::printf("%s, step %3d: loss %.6f\n", name, step,
                static_cast<double>(losses[static_cast<std::size_t>(step)]));
  }
  return losses.back() < 0.01f * losses.front();
}

bool have_device() {
#if defined(EXAMPLE_WITH_CUDA)
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return false;
#endif
}

}  // namespace

int main() {
  try {
    const std::vector<float> on_host = train(Where::host);
    if (!learned("CPU", on_host)) return 1;
    if (!have_device()) {
      std::printf("no CUDA device: trained on the CPU alone\n");
      return 0;
    }
    const std::vector<float> on_device = train(Where::device);
    if (!learned("GPU", on_device)) return 1;
    // Rounding differs in the last bits, and every step builds on the one before.
    float apart = 0;
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      apart = std::max(apart, std::fabs(on_host[i] - on_device[i]));
    }
    std::printf("largest difference of a loss: %.2e\n", static_cast<double>(apart));
    return apart < 1e-3f ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
