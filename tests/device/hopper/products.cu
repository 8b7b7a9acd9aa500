/// Products by wgmma of tiles that the copy engine loaded.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/ptx/pin.cuh"
#include "kernels/device/ptx/shared_address.cuh"
#include "kernels/device/ptx/tma.cuh"
#include "kernels/device/ptx/wgmma.cuh"
#include "kernels/device/tile/descriptor.cuh"
#include "tests/device/hopper/launch.hpp"
#include "tests/device/hopper/run.cuh"

namespace fa::test::hopper {
namespace {

using internal::kBoxColumns;
using internal::kBoxRowBytes;
namespace ptx = internal::ptx;

constexpr int kThreads = 128 * (kProductRows / 64);

// Every tile is boxes of 64 columns, of which the last may be half a box.
constexpr int boxes_of(int columns) {
  return (columns + kBoxColumns - 1) / kBoxColumns;
}

template <class T, int N>
struct alignas(internal::kSwizzleAtomBytes) SharedScores {
  static constexpr int kBoxes = boxes_of(kFeatures);
  T Q[kBoxes][kProductRows][kBoxColumns];
  T K[kBoxes][N][kBoxColumns];
  uint64_t full;
};

template <class T, int N>
struct alignas(internal::kSwizzleAtomBytes) SharedValues {
  static constexpr int kKeys = keys_beside(N);
  T V[boxes_of(N)][kKeys][kBoxColumns];
  uint64_t full;
};

__device__ void init(uint64_t& full) {
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(ptx::shared_address(&full), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

// By one thread.
template <class T, int kBoxes, int kRows>
__device__ void load(T (&tile)[kBoxes][kRows][kBoxColumns], const CUtensorMap& map, uint32_t full) {
  for (int box = 0; box < kBoxes; ++box) {
    ptx::tma_load(ptx::shared_address(tile[box]), map, {box * kBoxColumns, 0, 0, 0}, full);
  }
}

// Row of kProductRows that the thread's c[4 * i + 2 * half] and its neighbour belong to.
__device__ int row_of(int half) {
  const int thread = static_cast<int>(threadIdx.x);
  return thread / 32 * 16 + thread % 32 / 4 + 8 * half;
}

template <int N>
__device__ void write(float* gC, const float (&c)[N / 2]) {  // [kProductRows][N]
  const int column0 = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) gC[row_of(i % 4 / 2) * N + i / 4 * 8 + column0 + i % 2] = c[i];
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    scores_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                  float* gC) {  // [kProductRows][N]
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedScores<T, N>*>(shared_bytes);
  const uint32_t full = ptx::shared_address(&s.full);
  init(s.full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_bytes(full, sizeof s.Q + sizeof s.K);
    load(s.Q, q, full);
    load(s.K, k, full);
  }
  ptx::mbarrier_wait(full, 0);
  const uint32_t sQ = internal::tile_descriptor(ptx::shared_address(&s.Q[0][threadIdx.x / 128 * 64][0]), 0);
  const uint32_t sK = internal::tile_descriptor(ptx::shared_address(s.K), 0);
  float c[N / 2];
#pragma unroll
  for (float& x : c) x = 1e30f;  // which the first product does not add to
  ptx::pin(c);
  ptx::wgmma_fence();
#pragma unroll
  for (int d = 0; d < kFeatures; d += 16) {
    ptx::wgmma<T, N>(c, internal::rows_descriptor<kProductRows>(sQ, d), internal::rows_descriptor<N>(sK, d),
                     d != 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(c);
  write<N>(gC, c);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    output_kernel(const uint16_t* gP, const __grid_constant__ CUtensorMap v,
                  float* gC) {  // [kProductRows][kKeys], [kProductRows][N]
  constexpr int kKeys = SharedValues<T, N>::kKeys;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& s = *reinterpret_cast<SharedValues<T, N>*>(shared_bytes);
  const uint32_t full = ptx::shared_address(&s.full);
  init(s.full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_bytes(full, sizeof s.V);
    load(s.V, v, full);
  }
  uint32_t p[kKeys / 16][4];
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 16 * j + i / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      p[j][i] = *reinterpret_cast<const uint32_t*>(gP + row_of(i % 2) * kKeys + column);
    }
  }
  ptx::mbarrier_wait(full, 0);
  const uint32_t sV = internal::tile_descriptor(ptx::shared_address(s.V), kKeys * kBoxRowBytes);
  float c[N / 2];
#pragma unroll
  for (float& x : c) x = 3.0f;
  ptx::pin(p);
  ptx::pin(c);
  ptx::wgmma_fence();
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
    ptx::wgmma<T, N>(c, p[j], internal::columns_descriptor(sV, 16 * j));
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(c);
  write<N>(gC, c);
}

template <class T, int N>
std::vector<float> run_scores(Dtype dtype, const DeviceArray<uint16_t>& q, const DeviceArray<uint16_t>& k) {
  const DeviceArray<float> c(size_t{kProductRows} * N);
  run<scores_kernel<T, N>>(1, kThreads, sizeof(SharedScores<T, N>),
                           matrix_map(dtype, q.data(), kProductRows, kFeatures, kProductRows),
                           matrix_map(dtype, k.data(), N, kFeatures, N), c.data());
  return c.get();
}

template <class T>
std::vector<float> run_scores(Dtype dtype, int keys, const DeviceArray<uint16_t>& q,
                              const DeviceArray<uint16_t>& k) {
  if (keys == 64) return run_scores<T, 64>(dtype, q, k);
  if (keys == 80) return run_scores<T, 80>(dtype, q, k);
  if (keys == 112) return run_scores<T, 112>(dtype, q, k);
  return run_scores<T, 128>(dtype, q, k);
}

template <class T, int N>
std::vector<float> run_output(Dtype dtype, const DeviceArray<uint16_t>& p, const DeviceArray<uint16_t>& v) {
  const DeviceArray<float> c(size_t{kProductRows} * N);
  const uint16_t* const gP = p.data();
  run<output_kernel<T, N>>(1, kThreads, sizeof(SharedValues<T, N>), gP,
                           matrix_map(dtype, v.data(), keys_beside(N), N, keys_beside(N)), c.data());
  return c.get();
}

template <class T>
std::vector<float> run_output(Dtype dtype, int features, const DeviceArray<uint16_t>& p,
                              const DeviceArray<uint16_t>& v) {
  if (features == 64) return run_output<T, 64>(dtype, p, v);
  if (features == 96) return run_output<T, 96>(dtype, p, v);
  if (features == 128) return run_output<T, 128>(dtype, p, v);
  if (features == 192) return run_output<T, 192>(dtype, p, v);
  return run_output<T, 256>(dtype, p, v);
}

}  // namespace

std::vector<float> scores(Dtype dtype, int keys, const std::vector<uint16_t>& q,
                          const std::vector<uint16_t>& k) {
  const DeviceArray<uint16_t> device_q(q), device_k(k);
  return dtype == Dtype::float16 ? run_scores<__half>(dtype, keys, device_q, device_k)
                                 : run_scores<__nv_bfloat16>(dtype, keys, device_q, device_k);
}

std::vector<float> output(Dtype dtype, int features, const std::vector<uint16_t>& p,
                          const std::vector<uint16_t>& v) {
  const DeviceArray<uint16_t> device_p(p), device_v(v);
  return dtype == Dtype::float16 ? run_output<__half>(dtype, features, device_p, device_v)
                                 : run_output<__nv_bfloat16>(dtype, features, device_p, device_v);
}

}  // namespace fa::test::hopper
