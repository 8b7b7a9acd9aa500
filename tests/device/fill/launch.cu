#include "tests/device/fill/launch.cuh"

namespace fa::test::fill {

int launch(const Params& params, struct ::CUstream_st* stream) {
  const internal::DeviceProperties device;
  const internal::LaunchContext context = {&device, stream, 0};
  const bool fp32 = params.dtype == Dtype::float32;
  const bool fp16 = params.dtype == Dtype::float16;
  if (fp32 && params.head_dim == 64) return launch<Config<float, 64>>(params, context);
  if (fp16 && params.head_dim == 64) return launch<Config<__half, 64>>(params, context);
  if (fp16 && params.head_dim == 128) return launch<Config<__half, 128>>(params, context);
  return cudaErrorInvalidValue;
}

}  // namespace fa::test::fill
