/// What the forward suites share: the rows of the kernel table as test parameters, a strided array on either
/// side, and one run of a problem by one row that accepts the row's own stated rejection and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <flashattn/flashattn.hpp>

#include "tests/support/compare.hpp"
#include "tests/support/oracle.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/run.hpp"

namespace fa::test {

/// A forward row of the kernel table.
struct Row {
  Version version;
  Dtype dtype;
  Side side;
  bool built;
  std::string kernel;
};

/// Every forward row, in the table's order.
std::vector<Row> forward_rows();
/// Those of one element type.
std::vector<Row> forward_rows_of(Dtype dtype);
/// Those of a 16-bit element type.
std::vector<Row> forward_rows_of_16_bits();

/// "CPU_fp32": the row's part of a test's name.
std::string row_name(const Row& row);
std::ostream& operator<<(std::ostream& os, const Row& row);

/// The suffix gtest gives a test of this row.
struct RowName {
  std::string operator()(const testing::TestParamInfo<Row>& info) const { return row_name(info.param); }
};

/// Bytes of memory of one side; pages are taken as they are touched.
class Memory {
 public:
  /// Throws std::bad_alloc where the side has not that much.
  Memory(Side side, std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  void write(std::size_t offset, const void* from, std::size_t bytes);
  void read(std::size_t offset, void* to, std::size_t bytes) const;

 private:
  Side side_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// A strided tensor in memory of one side, written and read in logical order. What lies between its elements,
/// and after the last, keeps what `fill` wrote.
class Array {
 public:
  /// Strides in elements; `extra` elements are allocated after the last.
  Array(Side side, Dtype dtype, const std::int64_t (&size)[4], const std::int64_t (&stride)[3],
        std::int64_t extra = 0);
  /// Contiguous [B, H, S, D].
  Array(Side side, Dtype dtype, const std::int64_t (&size)[4]);

  /// Every byte of the buffer, gaps too.
  void fill(unsigned char byte);
  /// Every element of the buffer, gaps too.
  void fill_value(float value);
  /// The elements, from contiguous [B, H, S, D]; rounds to the dtype.
  void set(const std::vector<float>& values);
  /// One element.
  void set(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, float value);
  /// The elements, contiguous [B, H, S, D].
  std::vector<float> get() const;
  /// The elements' own bits, contiguous.
  std::vector<std::uint32_t> bits() const;

  fa_tensor tensor() const;
  void* data() const { return memory_->data(); }
  std::int64_t offset(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return b * stride_[0] + h * stride_[1] + s * stride_[2] + d;
  }

 private:
  void put(std::int64_t at, float value);
  /// visit(first element, elements) for runs of elements without a gap, in logical order.
  template <class Visit>
  void for_each_run(const Visit& visit) const;

  Dtype dtype_;
  std::int64_t size_[4];
  std::int64_t stride_[4];
  std::int64_t elements_;  // of the buffer
  Side side_;
  std::unique_ptr<Memory> memory_;
};

/// A call in the C interface's words, with the defaults set and the four tensors in place.
fa_forward_args make_args(const Array& q, const Array& k, const Array& v, const Array& out);

/// Waits for the side's work and runs: the status of fa_forward by the row.
fa_status run_args(const fa_forward_args& args, const Row& row);

/// The element's bits: unequal wherever the values differ in any way.
std::vector<std::uint32_t> bits_of(const std::vector<float>& values);

/// What explain says about the problem by the row; does not run it.
Explanation explain_problem(const Problem& problem, const Row& row);

/// The name of the kernel that runs the call by the row, a stand-in's where one does; empty: none.
std::string kernel_of(const fa_forward_args& args, const Row& row);

/// The row's own code takes the problem: no rejection, and no stand-in.
bool takes(Problem problem, const Row& row);

/// run_forward by the row with the row's own dtype in the problem. Nothing where the row rejects the problem
/// and explain says the same; a rejection that explain does not state, any other exception, or damage to a
/// guard band is a failure, with the problem's line. The CPU backend takes every problem: its rejections
/// fail.
std::optional<Outputs<float>> run_row(const Problem& problem, const Inputs& inputs, const Row& row);

/// run_row with the problem's own data, compared by check_forward. True where it ran.
bool check_row(Problem problem, const Row& row);
bool check_row(Problem problem, const Inputs& inputs, const Row& row);

/// A suite over the rows. A row on a device is skipped where there is none, as is one whose code was left
/// out. A row that rejected every one of fifty calls and more fails the suite.
class RowSuite : public testing::TestWithParam<Row> {
 protected:
  static void TearDownTestSuite();
  void SetUp() override;
  const Row& row() const { return GetParam(); }
  bool on_host() const { return row().side == Side::host; }
  /// The problem of the line, in the row's dtype.
  Problem problem(const std::string& line) const;
};

}  // namespace fa::test
