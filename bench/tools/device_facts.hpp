/// The facts of the GPU that a program runs on, to stand beside its figures.
#pragma once

#include "bench/run_facts.hpp"

namespace fa::bench {

/// The GPU's name and compute capability, driver, and CUDA runtime; {"gpu", "none"} where there is none.
Facts device_facts();

}  // namespace fa::bench
