/// One copy of a problem in device memory, laid out as it says, and the C arguments that describe it.
#pragma once

#include "bench/device/cuda.hpp"
#include "bench/row_check.hpp"
#include "tests/support/layout.hpp"

namespace fa::bench {

/// By how many bytes a tensor of the problem lies off its buffer's alignment: an element where the layout is
/// unaligned.
std::size_t misalignment(const test::Problem& problem, Dtype dtype);
/// Of a tensor's buffer.
std::size_t buffer_bytes(const test::Problem& problem, const test::Placed& placed, Dtype dtype);

/// Reads rows of a tensor in device memory. The stream must outlive the reader, which waits for it.
HeadReader rows_reader(const fa_tensor& tensor, const DeviceStream& stream);

class DeviceProblem {
 public:
  /// Data of the problem's kind, made on the device; `seed` besides the problem's own.
  DeviceProblem(const test::Problem& problem, std::uint64_t seed, const DeviceStream& stream);

  /// The same outputs for every row: only one is looked at at a time.
  const fa_forward_args& args() const { return args_; }
  /// Makes every output byte 0xFF, which is NaN in every dtype. Asynchronous.
  void spoil_outputs(const DeviceStream& stream) const;

  // Everything below waits for the stream.
  InputReader input_reader(const DeviceStream& stream) const;
  OutputRow row(std::int64_t b, std::int64_t h, std::int64_t i, const DeviceStream& stream) const;
  test::Inputs inputs(const DeviceStream& stream) const;
  test::Outputs<float> outputs(const DeviceStream& stream) const;

 private:
  test::Problem problem_;
  test::PlacedProblem placed_;
  DeviceMemory q_, k_, v_, out_, lse_;  // q_ holds all inputs of a packed problem
  fa_forward_args args_;
};

}  // namespace fa::bench
