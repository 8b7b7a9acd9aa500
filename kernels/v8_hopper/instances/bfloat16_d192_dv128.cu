#include "kernels/v8_hopper/instance.cuh"

namespace fa::internal::v8 {
using Instance = Tiles<__nv_bfloat16, 192, 128>;
template cudaError_t prepare<Instance>(const DeviceProperties&);
template cudaError_t launch<Instance>(const ForwardParams&, Dtype, const LaunchContext&);
}  // namespace fa::internal::v8
