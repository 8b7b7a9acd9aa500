/// Tensor maps, which tell the copy engine where a tensor lies and how a tile of it is cut out. Host code.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/params.hpp"

namespace fa::internal::v8 {

/// cuTensorMapEncodeTiled of the driver; null where it has none (before CUDA 12.0).
using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

inline EncodeTiled encode_tiled() {
  static const EncodeTiled entry = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return entry;
}

/// The map of data [B, heads, rows, features], 16-bit elements, for boxes of box_rows rows of one head and 64
/// features. Rows start at multiples of 16 bytes. A dimension of one index may have any stride. Loads give
/// zeros for features from `features` on; stores write up to the next multiple of 16 bytes (seen on an H200).
inline bool make_tensor_map(CUtensorMap& map, Dtype dtype, const void* data, const Strides& stride, int B,
                            int heads, int rows, int features, int box_rows) {
  constexpr uint64_t kElementBytes = 2;
  const cuuint64_t size[4] = {static_cast<cuuint64_t>(features), static_cast<cuuint64_t>(rows),
                              static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(B)};
  const auto bytes = [](int64_t elements, int sizes) {
    return sizes == 1 ? uint64_t{16} : static_cast<uint64_t>(elements) * kElementBytes;
  };
  const cuuint64_t strides[3] = {bytes(stride.seq, rows), bytes(stride.head, heads), bytes(stride.batch, B)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  const auto encode = [&] {
    return encode_tiled()(
               &map,
               dtype == Dtype::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
               4, const_cast<void*>(data), size, strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  if (encode()) return true;
  // The driver wants a current context, which a thread has from its first call of the runtime that needs one.
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess && encode();
}

}  // namespace fa::internal::v8
