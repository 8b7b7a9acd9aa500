// Stands in for the device's side in a build without it.
#include "bench/side.hpp"

namespace fa::bench {

std::unique_ptr<Side> device_side(std::string* why_not) {
  *why_not = "this build of bench_attention measures the host only";
  return nullptr;
}

}  // namespace fa::bench
