#include "tests/forward/rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <ostream>
#include <stdexcept>

#include <sys/mman.h>

#include "tests/support/layout.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif
#if defined(FLASHATTN_TEST_CUBLAS)
#include "tests/support/device_reference.hpp"
#endif

namespace fa::test {
namespace {

std::vector<Row> rows_where(bool (*wanted)(Dtype)) {
  std::vector<Row> rows;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    if (fa_kernel_info_get(i, &info) != FA_OK) throw std::runtime_error(fa_last_error());
    const Dtype dtype = static_cast<Dtype>(info.dtype);
    if (info.pass != FA_PASS_FORWARD || !wanted(dtype)) continue;
    const Version version = static_cast<Version>(info.version);
    rows.push_back(
        {version, dtype, version == Version::CPU ? Side::host : Side::device, info.built != 0, info.name});
  }
  return rows;
}

const char* short_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return "fp32";
    case Dtype::float16:
      return "fp16";
    case Dtype::bfloat16:
      return "bf16";
    case Dtype::none:
      break;
  }
  return "none";
}

// Elements from the first to the last, both included; 0 where a size is 0.
std::int64_t span(const std::int64_t (&size)[4], const std::int64_t (&stride)[4]) {
  std::int64_t last = 0;
  for (int dim = 0; dim < 4; ++dim) {
    if (size[dim] == 0) return 0;
    last += (size[dim] - 1) * stride[dim];
  }
  return last + 1;
}

std::uint32_t encode(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::float16:
      return half(value).bits;
    case Dtype::bfloat16:
      return bfloat16(value).bits;
    default:
      return std::bit_cast<std::uint32_t>(value);
  }
}

float decode(Dtype dtype, std::uint32_t bits) {
  if (dtype == Dtype::float32) return std::bit_cast<float>(bits);
  if (dtype == Dtype::float16) {
    half x;
    x.bits = static_cast<std::uint16_t>(bits);
    return static_cast<float>(x);
  }
  bfloat16 x;
  x.bits = static_cast<std::uint16_t>(bits);
  return static_cast<float>(x);
}

// How many calls of a row ran, and how many it rejected, since the suite began.
struct Tally {
  int ran = 0, rejected = 0;
};
std::map<std::string, Tally>& tallies() {
  static std::map<std::string, Tally> all;
  return all;
}

#if defined(FLASHATTN_TEST_CUBLAS)
bool all_finite(const Inputs& inputs) {
  for (const std::vector<float>* values : {&inputs.q, &inputs.k, &inputs.v}) {
    if (!std::all_of(values->begin(), values->end(), [](float x) { return std::isfinite(x); })) return false;
  }
  return true;
}
#endif

}  // namespace

std::vector<Row> forward_rows() {
  return rows_where([](Dtype) { return true; });
}

std::vector<Row> forward_rows_of_16_bits() {
  return rows_where([](Dtype dtype) { return size_of(dtype) == 2; });
}

std::vector<Row> forward_rows_of(Dtype dtype) {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [dtype](const Row& row) { return row.dtype != dtype; });
  return rows;
}

std::string row_name(const Row& row) {
  return std::string(name_of(row.version)) + "_" + short_name(row.dtype);
}

std::ostream& operator<<(std::ostream& os, const Row& row) {
  return os << row.kernel;
}

Memory::Memory(Side side, std::size_t bytes) : side_(side), bytes_(std::max<std::size_t>(bytes, 1)) {
  if (side_ == Side::host) {
    void* p =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = p;
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  if (cudaMalloc(&data_, bytes_) != cudaSuccess) {
    cudaGetLastError();
    throw std::bad_alloc();
  }
#else
  throw std::bad_alloc();
#endif
}

Memory::~Memory() {
  if (side_ == Side::host) {
    munmap(data_, bytes_);
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  cudaFree(data_);
#endif
}

void Memory::write(std::size_t offset, const void* from, std::size_t bytes) {
  if (offset + bytes > bytes_) throw std::out_of_range("Memory::write");
  void* to = static_cast<char*>(data_) + offset;
  if (side_ == Side::host) {
    std::memcpy(to, from, bytes);
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  if (cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
    throw std::runtime_error("cudaMemcpy");
#endif
}

void Memory::read(std::size_t offset, void* to, std::size_t bytes) const {
  if (offset + bytes > bytes_) throw std::out_of_range("Memory::read");
  const void* from = static_cast<const char*>(data_) + offset;
  if (side_ == Side::host) {
    std::memcpy(to, from, bytes);
    return;
  }
#if defined(FLASHATTN_TEST_CUDA)
  if (cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
    throw std::runtime_error("cudaMemcpy");
#endif
}

Array::Array(Side side, Dtype dtype, const std::int64_t (&size)[4], const std::int64_t (&stride)[3],
             std::int64_t extra)
    : dtype_(dtype),
      size_{size[0], size[1], size[2], size[3]},
      stride_{stride[0], stride[1], stride[2], 1},
      elements_(span(size_, stride_) + extra),
      side_(side) {
  memory_ = std::make_unique<Memory>(side, static_cast<std::size_t>(elements_) * size_of(dtype));
}

Array::Array(Side side, Dtype dtype, const std::int64_t (&size)[4])
    : Array(side, dtype, size, {size[1] * size[2] * size[3], size[2] * size[3], size[3]}) {}

void Array::put(std::int64_t at, float value) {
  const std::uint32_t bits = encode(dtype_, value);  // little-endian: a 16-bit value is its first two bytes
  memory_->write(static_cast<std::size_t>(at) * size_of(dtype_), &bits, size_of(dtype_));
}

void Array::fill(unsigned char byte) {
  const std::vector<unsigned char> bytes(static_cast<std::size_t>(elements_) * size_of(dtype_), byte);
  memory_->write(0, bytes.data(), bytes.size());
}

void Array::fill_value(float value) {
  const std::size_t width = size_of(dtype_);
  const std::uint32_t bits = encode(dtype_, value);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(elements_) * width);
  for (std::size_t i = 0; i < bytes.size(); i += width) std::memcpy(&bytes[i], &bits, width);
  memory_->write(0, bytes.data(), bytes.size());
}

// Rows that follow each other without a gap travel together: a device is asked once for each run of them.
template <class Visit>
void Array::for_each_run(const Visit& visit) const {
  const bool rows_touch = stride_[2] == size_[3];
  const bool heads_touch = rows_touch && stride_[1] == size_[2] * stride_[2];
  const bool batches_touch = heads_touch && stride_[0] == size_[1] * stride_[1];
  const std::int64_t B = batches_touch ? 1 : size_[0], H = heads_touch ? 1 : size_[1],
                     S = rows_touch ? 1 : size_[2];
  const std::int64_t run = size_[0] * size_[1] * size_[2] * size_[3] / std::max<std::int64_t>(1, B * H * S);
  if (run == 0) return;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t s = 0; s < S; ++s) visit(offset(b, h, s, 0), static_cast<std::size_t>(run));
}

void Array::set(const std::vector<float>& values) {
  const std::size_t width = size_of(dtype_);
  std::size_t next = 0;
  for_each_run([&](std::int64_t at, std::size_t count) {
    std::vector<unsigned char> run(count * width);
    for (std::size_t i = 0; i < run.size(); i += width) {
      const std::uint32_t bits = encode(dtype_, values.at(next++));
      std::memcpy(&run[i], &bits, width);
    }
    memory_->write(static_cast<std::size_t>(at) * width, run.data(), run.size());
  });
  if (next != values.size()) throw std::invalid_argument("Array::set: another number of values");
}

void Array::set(std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t d, float value) {
  put(offset(b, h, s, d), value);
}

std::vector<std::uint32_t> Array::bits() const {
  const std::size_t width = size_of(dtype_);
  std::vector<std::uint32_t> all;
  for_each_run([&](std::int64_t at, std::size_t count) {
    std::vector<unsigned char> run(count * width);
    memory_->read(static_cast<std::size_t>(at) * width, run.data(), run.size());
    for (std::size_t i = 0; i < run.size(); i += width) {
      std::uint32_t one = 0;
      std::memcpy(&one, &run[i], width);
      all.push_back(one);
    }
  });
  return all;
}

std::vector<float> Array::get() const {
  std::vector<float> values;
  for (const std::uint32_t one : bits()) values.push_back(decode(dtype_, one));
  return values;
}

fa_tensor Array::tensor() const {
  return {memory_->data(),
          static_cast<fa_dtype>(dtype_),
          0,
          {size_[0], size_[1], size_[2], size_[3]},
          {stride_[0], stride_[1], stride_[2], stride_[3]}};
}

fa_forward_args make_args(const Array& q, const Array& k, const Array& v, const Array& out) {
  fa_forward_args args;
  if (fa_forward_args_init(&args, sizeof args) != FA_OK) throw std::runtime_error(fa_last_error());
  args.q = q.tensor();
  args.k = k.tensor();
  args.v = v.tensor();
  args.out = out.tensor();
  return args;
}

fa_status run_args(const fa_forward_args& args, const Row& row) {
  const fa_status status = fa_forward(&args, static_cast<fa_version>(row.version), nullptr);
#if defined(FLASHATTN_TEST_CUDA)
  if (row.side == Side::device && cudaDeviceSynchronize() != cudaSuccess) return FA_CUDA_ERROR;
#endif
  return status;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

Explanation explain_problem(const Problem& problem, const Row& row) {
  // explain reads no element: ranges of address space are enough, shifted as run_forward shifts them.
  const Problem& p = problem;
  const PlacedProblem placed = place(p);
  const auto shift = [&](Dtype dtype) { return p.layout == Layout::unaligned ? size_of(dtype) : 0; };
  const auto room = [&](const Placed& t, Dtype dtype) {
    return static_cast<std::size_t>(t.elements) * size_of(dtype) + shift(dtype);
  };
  const std::size_t lse_bytes = static_cast<std::size_t>(p.B * p.H * p.M + 1) * sizeof(float);
  const Memory q(row.side, room(placed.q, p.dtype)),
      own_k(row.side, placed.one_buffer ? 0 : room(placed.k, p.dtype)),
      own_v(row.side, placed.one_buffer ? 0 : room(placed.v, p.dtype)),
      out(row.side, room(placed.out, p.out_dtype())), lse(row.side, lse_bytes);
  const auto tensor = [&](const Memory& memory, const Placed& t, Dtype dtype) {
    return c_tensor(static_cast<char*>(memory.data()) + shift(dtype), t, dtype);
  };
  fa_forward_args args;
  if (fa_forward_args_init(&args, sizeof args) != FA_OK) throw std::runtime_error(fa_last_error());
  args.q = tensor(q, placed.q, p.dtype);
  args.k = tensor(placed.one_buffer ? q : own_k, placed.k, p.dtype);
  args.v = tensor(placed.one_buffer ? q : own_v, placed.v, p.dtype);
  args.out = tensor(out, placed.out, p.out_dtype());
  args.lse = p.lse ? static_cast<float*>(lse.data()) : nullptr;
  args.mask = {p.mask.left, p.mask.right, static_cast<std::int32_t>(p.mask.alignment), 0};
  args.scale = p.scale.value_or(0.0f);
  args.scale_is_set = p.scale.has_value() ? 1 : 0;
  args.threads = p.threads;

  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  std::size_t length = 0;
  const fa_version version = static_cast<fa_version>(row.version);
  if (fa_forward_explain(&args, version, &plan, nullptr, 0, &length) != FA_OK) {
    throw std::runtime_error(std::string("explain: ") + fa_last_error());
  }
  std::string text(length + 1, '\0');
  fa_forward_explain(&args, version, &plan, text.data(), text.size(), nullptr);
  text.resize(length);
  Explanation e;
  e.runs = plan.runs != 0;
  e.version = static_cast<Version>(plan.version);
  e.workspace_size = plan.workspace_size;
  e.kernel = plan.kernel == nullptr ? "" : plan.kernel;
  e.text = text;
  return e;
}

std::string kernel_of(const fa_forward_args& args, const Row& row) {
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  if (fa_forward_explain(&args, static_cast<fa_version>(row.version), &plan, nullptr, 0, nullptr) != FA_OK) {
    throw std::runtime_error(std::string("explain: ") + fa_last_error());
  }
  return plan.kernel == nullptr ? "" : plan.kernel;
}

bool takes(Problem problem, const Row& row) {
  problem.dtype = row.dtype;
  return explain_problem(problem, row).kernel == row.kernel;
}

std::optional<Outputs<float>> run_row(const Problem& problem, const Inputs& inputs, const Row& row) {
  Problem p = problem;
  p.dtype = row.dtype;
  const std::string line = to_string(p);
  try {
    const RunResult result = run_forward(p, inputs, row.version, row.side);
    ++tallies()[row.kernel].ran;
    EXPECT_EQ(result.guard_damage, "") << line;
    return result.got;
  } catch (const Unsupported& e) {
    ++tallies()[row.kernel].rejected;
    if (row.version == Version::CPU) {
      ADD_FAILURE() << "the CPU backend takes every problem, but: " << e.what() << "\n" << line;
      return std::nullopt;
    }
    const Explanation said = explain_problem(p, row);
    EXPECT_FALSE(said.runs) << line << "\nexplain says that it runs, but: " << e.what();
    EXPECT_STRNE(e.what(), "") << line;
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what() << "\n" << line;
  }
  return std::nullopt;
}

bool check_row(Problem problem, const Inputs& inputs, const Row& row) {
  problem.dtype = row.dtype;
  const std::optional<Outputs<float>> got = run_row(problem, inputs, row);
  if (!got) return false;
  const Reference reference = make_reference(problem, inputs);
  EXPECT_EQ(check_forward(problem, reference, inputs, *got), "") << to_string(problem);
#if defined(FLASHATTN_TEST_CUBLAS)
  // A second opinion that shares nothing with the oracle: cuBLAS + softmax in fp32.
  if (row.side == Side::device && all_finite(inputs)) {
    const Outputs<float> second = device_reference_forward(problem, inputs);
    const Reference other = {{{second.out.begin(), second.out.end()}, {second.lse.begin(), second.lse.end()}},
                             reference.yardstick};
    EXPECT_EQ(check_forward(problem, other, inputs, *got), "")
        << "against cuBLAS + softmax: " << to_string(problem);
  }
#endif
  return true;
}

bool check_row(Problem problem, const Row& row) {
  problem.dtype = row.dtype;
  return check_row(problem, make_inputs(problem), row);
}

void RowSuite::TearDownTestSuite() {
  for (const auto& [kernel, tally] : tallies()) {
    EXPECT_FALSE(tally.ran == 0 && tally.rejected >= 50)
        << kernel << " rejected all of " << tally.rejected << " calls";
  }
  tallies().clear();
}

void RowSuite::SetUp() {
  if (!row().built) GTEST_SKIP() << "skipped: this build left out " << row().kernel;
  if (row().side == Side::device && !have_device()) GTEST_SKIP() << "skipped: no CUDA device";
}

Problem RowSuite::problem(const std::string& line) const {
  Problem p = parse_problem(line);
  p.dtype = row().dtype;
  return p;
}

}  // namespace fa::test
