/// Random normal data, made on the device: no host time, no copy.
#pragma once

#include <cstdint>

#include <flashattn/types.hpp>

#include "tests/support/layout.hpp"

struct CUstream_st;

namespace fa::bench {

/// Writes factor * normal to the tensor's elements, and to nothing between them. An element's value depends
/// on `seed` and on its place in logical order alone; elements that share an address get one value.
/// `buffer` is the tensor's whole buffer. Asynchronous. Throws std::runtime_error.
void fill_normal(void* buffer, const test::Placed& placed, Dtype dtype, std::uint64_t seed, float factor,
                 CUstream_st* stream);

}  // namespace fa::bench
