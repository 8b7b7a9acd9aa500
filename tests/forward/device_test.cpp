/// What only a device has: streams, graphs, the current device, the runtime's error state, kinds of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/forward/rows.hpp"

namespace fa::test {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

#define CHECK(call) check(call, #call)

std::vector<Row> device_rows() {
  std::vector<Row> rows = forward_rows();
  std::erase_if(rows, [](const Row& row) { return row.side == Side::host; });
  return rows;
}

/// A stream that does not wait for the default one.
class NonBlockingStream {
 public:
  NonBlockingStream() { CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~NonBlockingStream() { cudaStreamDestroy(stream_); }
  NonBlockingStream(const NonBlockingStream&) = delete;
  NonBlockingStream& operator=(const NonBlockingStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A problem with its tensors on the current device.
struct Call {
  Problem problem;
  Array q, k, v, out;
  Memory lse;

  explicit Call(const Problem& p)
      : problem(p),
        q(Side::device, p.dtype, {p.B, p.H, p.M, p.D}),
        k(Side::device, p.dtype, {p.B, p.Hk, p.N, p.D}),
        v(Side::device, p.dtype, {p.B, p.Hk, p.N, p.Dv}),
        out(Side::device, p.dtype, {p.B, p.H, p.M, p.Dv}),
        lse(Side::device, rows() * sizeof(float)) {
    set(make_inputs(p));
    clear();
  }

  std::size_t rows() const { return static_cast<std::size_t>(problem.B * problem.H * problem.M); }
  void set(const Inputs& inputs) {
    q.set(inputs.q);
    k.set(inputs.k);
    v.set(inputs.v);
    CHECK(cudaDeviceSynchronize());
  }
  void clear() {
    out.fill(0xFF);
    const std::vector<unsigned char> unset(rows() * sizeof(float), 0xFF);
    lse.write(0, unset.data(), unset.size());
    CHECK(cudaDeviceSynchronize());
  }
  fa_forward_args args() const {
    fa_forward_args a = make_args(q, k, v, out);
    a.mask = {problem.mask.left, problem.mask.right, static_cast<std::int32_t>(problem.mask.alignment), 0};
    a.lse = static_cast<float*>(lse.data());
    return a;
  }
  /// Bits of out, then of lse.
  std::vector<std::uint32_t> result() const {
    CHECK(cudaDeviceSynchronize());
    std::vector<std::uint32_t> bits = out.bits();
    const std::size_t count = bits.size();
    bits.resize(count + rows());
    lse.read(0, bits.data() + count, rows() * sizeof(float));
    return bits;
  }
};

class OnDevice : public RowSuite {
 protected:
  void SetUp() override {
    RowSuite::SetUp();
    if (!IsSkipped()) {
      CHECK(cudaSetDevice(0));
      ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    }
  }
  fa_status run(const fa_forward_args& args, cudaStream_t stream) const {
    return fa_forward(&args, static_cast<fa_version>(row().version), stream);
  }
  /// The result of the call run alone, on the default stream.
  std::vector<std::uint32_t> run_alone(Call& call) const {
    call.clear();
    EXPECT_EQ(run(call.args(), nullptr), FA_OK) << fa_last_error();
    return call.result();
  }
  const char* line() const { return "B2 H4/2 S160 D64 causal"; }
};

// The input arrives on the stream late; the result leaves on it right away, and nothing but the stream is
// waited for.
TEST_P(OnDevice, P21_WorkStaysOnItsStream) {
  Call call(problem(line()));
  std::vector<std::uint32_t> want = run_alone(call);
  want.resize(want.size() - call.rows());  // without the LSE
  call.clear();

  const Problem& p = call.problem;
  const std::size_t q_bytes = static_cast<std::size_t>(p.B * p.H * p.M * p.D) * size_of(p.dtype);
  const std::size_t out_bytes = want.size() * size_of(p.dtype);
  void *late = nullptr, *back = nullptr;
  CHECK(cudaMallocHost(&late, q_bytes));
  CHECK(cudaMallocHost(&back, out_bytes));
  CHECK(cudaMemcpy(late, call.q.data(), q_bytes, cudaMemcpyDeviceToHost));
  call.q.fill(0);  // until the stream brings the real one
  CHECK(cudaDeviceSynchronize());

  const NonBlockingStream stream;
  CHECK(cudaLaunchHostFunc(
      stream.get(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr));
  CHECK(cudaMemcpyAsync(call.q.data(), late, q_bytes, cudaMemcpyHostToDevice, stream.get()));
  ASSERT_EQ(run(call.args(), stream.get()), FA_OK) << fa_last_error();
  CHECK(cudaMemcpyAsync(back, call.out.data(), out_bytes, cudaMemcpyDeviceToHost, stream.get()));
  stream.wait();
  std::vector<std::uint32_t> got(want.size(), 0);
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::memcpy(&got[i], static_cast<const char*>(back) + i * size_of(p.dtype), size_of(p.dtype));
  }
  EXPECT_EQ(got, want);
  CHECK(cudaFreeHost(late));
  CHECK(cudaFreeHost(back));
}

std::size_t kernel_nodes(cudaGraph_t graph) {
  std::size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    CHECK(cudaGraphNodeGetType(node, &type));
    return type == cudaGraphNodeTypeKernel;
  }));
}

// Captured once, replayed with other data: with the library's own workspace and with the caller's.
TEST_P(OnDevice, P21_GraphReplaySeesNewData) {
  for (const bool own_workspace : {true, false}) {
    SCOPED_TRACE(own_workspace ? "the library's workspace" : "the caller's workspace");
    Call call(problem(line()));
    fa_forward_args args = call.args();
    std::size_t bytes = 0;
    ASSERT_EQ(fa_forward_workspace_size(&args, static_cast<fa_version>(row().version), &bytes), FA_OK);
    const Memory workspace(Side::device, bytes);
    if (!own_workspace && bytes > 0) {
      args.workspace = workspace.data();
      args.workspace_size = bytes;
    }
    ASSERT_EQ(fa_forward_prepare(&args, static_cast<fa_version>(row().version)), FA_OK) << fa_last_error();

    const NonBlockingStream stream;
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
    const fa_status status = run(args, stream.get());
    CHECK(cudaStreamEndCapture(stream.get(), &graph));
    ASSERT_EQ(status, FA_OK) << fa_last_error();
    EXPECT_GE(kernel_nodes(graph), 1u);
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));

    for (const std::uint64_t seed : {11u, 12u}) {
      Problem other = call.problem;
      other.seed = seed;
      call.set(make_inputs(other));
      const std::vector<std::uint32_t> want = run_alone(call);
      call.clear();
      CHECK(cudaGraphLaunch(exec, stream.get()));
      CHECK(cudaGraphLaunch(exec, stream.get()));
      stream.wait();
      EXPECT_EQ(call.result(), want) << "seed " << seed;
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
}

// No prepare, no call before it (ctest runs it in a process of its own): modules load and the pool is made in
// capture.
TEST_P(OnDevice, P21_FirstCallUnderCapture) {
  Call call(problem(line()));
  const NonBlockingStream stream;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  const fa_status status = run(call.args(), stream.get());
  CHECK(cudaStreamEndCapture(stream.get(), &graph));
  ASSERT_EQ(status, FA_OK) << fa_last_error();
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream.get()));
  stream.wait();
  const std::vector<std::uint32_t> got = call.result();
  EXPECT_EQ(got, run_alone(call));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// Host threads on streams of their own, each with its own problem, without a word between them.
TEST_P(OnDevice, P21_TwoHostThreadsOnTwoStreams) {
  Call first(problem("B2 H4/2 S160 D64 causal seed 5")), second(problem("B1 H6/3 S97 D64 seed 6"));
  const std::vector<std::uint32_t> want_first = run_alone(first), want_second = run_alone(second);
  first.clear();
  second.clear();
  const auto repeat = [this](const Call& call, fa_status& worst) {
    const NonBlockingStream stream;
    for (int i = 0; i < 100; ++i) worst = std::max(worst, run(call.args(), stream.get()));
    stream.wait();
  };
  fa_status first_status = FA_OK, second_status = FA_OK;
  std::thread one(repeat, std::cref(first), std::ref(first_status));
  std::thread two(repeat, std::cref(second), std::ref(second_status));
  one.join();
  two.join();
  EXPECT_EQ(first_status, FA_OK);
  EXPECT_EQ(second_status, FA_OK);
  EXPECT_EQ(first.result(), want_first);
  EXPECT_EQ(second.result(), want_second);
}

// P20: everything on one device while another is current, both ways round.
TEST_P(OnDevice, P20_AnotherDeviceIsCurrent) {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) GTEST_SKIP() << "skipped: needs two CUDA devices";
  for (const int holder : {1, 0}) {
    SCOPED_TRACE("tensors on device " + std::to_string(holder));
    CHECK(cudaSetDevice(holder));
    Call call(problem("B4 H32 S16 D64"));
    call.q.fill_value(1);
    call.k.fill_value(1);
    call.v.fill_value(1);
    CHECK(cudaDeviceSynchronize());
    const int other = 1 - holder;
    CHECK(cudaSetDevice(other));
    fa_forward_args args = call.args();
    args.scale = 1;
    args.scale_is_set = 1;
    ASSERT_EQ(run(args, nullptr), FA_OK) << fa_last_error();
    int current = -1;
    CHECK(cudaGetDevice(&current));
    EXPECT_EQ(current, other);
    CHECK(cudaSetDevice(holder));
    CHECK(cudaDeviceSynchronize());
    for (const float x : call.out.get()) ASSERT_EQ(x, 1.0f);
    std::vector<float> lse(call.rows());
    call.lse.read(0, lse.data(), lse.size() * sizeof(float));
    for (const float x : lse) ASSERT_NEAR(x, 64 + std::log(16.0), 2e-5);
  }
  // Tensors on two devices.
  CHECK(cudaSetDevice(0));
  const Call on_first(problem(line()));
  CHECK(cudaSetDevice(1));
  const Call on_second(problem(line()));
  fa_forward_args args = on_first.args();
  args.k = on_second.args().k;
  EXPECT_EQ(run(args, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fa_last_error()).find("out is in memory of device 0 but k is in memory of device 1"),
            std::string::npos)
      << fa_last_error();
  CHECK(cudaSetDevice(0));
}

TEST_P(OnDevice, P20_TensorsOnBothSidesAreRefused) {
  const Call call(problem(line()));
  const Problem& p = call.problem;
  const Array host_k(Side::host, p.dtype, {p.B, p.Hk, p.N, p.D});
  fa_forward_args args = call.args();
  args.k.data = host_k.data();
  EXPECT_EQ(run(args, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(fa_last_error()),
            "out is in memory of device 0 but k is in host memory: all of them must be on one side");
  args = call.args();
  std::vector<float> host_lse(call.rows());
  args.lse = host_lse.data();
  EXPECT_EQ(run(args, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fa_last_error()).find("lse is in host memory"), std::string::npos) << fa_last_error();
  const std::vector<float> out = call.out.get();
  for (const float x : out) ASSERT_TRUE(std::isnan(x)) << "written";
}

TEST_P(OnDevice, HostTensorsAreRefusedByADevicesRow) {
  const Problem p = problem(line());
  const Array q(Side::host, p.dtype, {p.B, p.H, p.M, p.D}), k(Side::host, p.dtype, {p.B, p.Hk, p.N, p.D}),
      v(Side::host, p.dtype, {p.B, p.Hk, p.N, p.Dv}), out(Side::host, p.dtype, {p.B, p.H, p.M, p.Dv});
  EXPECT_EQ(run(make_args(q, k, v, out), nullptr), FA_UNSUPPORTED);
  EXPECT_NE(std::string(fa_last_error()).find("runs on a CUDA device, but the tensors are in host memory"),
            std::string::npos)
      << fa_last_error();
}

// Managed memory runs on the device; the CPU backend refuses what lies on one.
TEST_P(OnDevice, ManagedMemoryRunsOnTheDevice) {
  Call call(problem(line()));
  const std::vector<std::uint32_t> want = run_alone(call);
  const std::size_t bytes = call.out.bits().size() * size_of(call.problem.dtype);
  void* managed = nullptr;
  CHECK(cudaMallocManaged(&managed, bytes));
  fa_forward_args args = call.args();
  args.out.data = managed;
  ASSERT_EQ(run(args, nullptr), FA_OK) << fa_last_error();
  CHECK(cudaMemcpy(call.out.data(), managed, bytes, cudaMemcpyDefault));
  EXPECT_EQ(call.result(), want);
  EXPECT_EQ(fa_forward(&args, FA_CPU, nullptr), FA_UNSUPPORTED);
  EXPECT_NE(std::string(fa_last_error()).find("the tensors are in device memory"), std::string::npos)
      << fa_last_error();
  CHECK(cudaFree(managed));
}

// Page-locked memory is the device's, unless the CPU backend is named.
TEST_P(OnDevice, PinnedMemoryRunsWhereItIsNamed) {
  Call call(problem(line()));
  const Problem& p = call.problem;
  const std::vector<std::uint32_t> want = run_alone(call);
  const auto pinned = [&p](const Array& from, std::int64_t heads, std::int64_t length) {
    const std::size_t bytes = static_cast<std::size_t>(p.B * heads * length * p.D) * size_of(p.dtype);
    void* data = nullptr;
    CHECK(cudaMallocHost(&data, bytes));
    CHECK(cudaMemcpy(data, from.data(), bytes, cudaMemcpyDefault));
    return data;
  };
  fa_forward_args args = call.args();
  args.lse = nullptr;
  args.q.data = pinned(call.q, p.H, p.M);
  args.k.data = pinned(call.k, p.Hk, p.N);
  args.v.data = pinned(call.v, p.Hk, p.N);
  args.out.data = pinned(call.out, p.H, p.M);
  std::vector<unsigned char> zero(call.out.bits().size() * size_of(p.dtype));
  std::memcpy(args.out.data, zero.data(), zero.size());
  ASSERT_EQ(run(args, nullptr), FA_OK) << fa_last_error();
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(call.out.data(), args.out.data, zero.size(), cudaMemcpyDefault));
  EXPECT_EQ(call.result(), want);

  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  ASSERT_EQ(fa_forward_explain(&args, FA_AUTO, &plan, nullptr, 0, nullptr), FA_OK);
  EXPECT_EQ(plan.placement, FA_ON_DEVICE);
  ASSERT_EQ(fa_forward_explain(&args, FA_CPU, &plan, nullptr, 0, nullptr), FA_OK);
  EXPECT_EQ(plan.placement, FA_ON_HOST);
  EXPECT_EQ(plan.runs, 1);
  std::memset(args.out.data, 0xFF, zero.size());
  ASSERT_EQ(fa_forward(&args, FA_CPU, nullptr), FA_OK) << fa_last_error();
  CHECK(cudaMemcpy(call.out.data(), args.out.data, zero.size(), cudaMemcpyDefault));
  Outputs<float> on_host = {call.out.get(), {}};
  Problem without_lse = p;
  without_lse.lse = false;
  EXPECT_EQ(check_forward(without_lse, make_inputs(p), on_host), "");
  for (const void* data : {args.q.data, args.k.data, args.v.data, args.out.data}) {
    CHECK(cudaFreeHost(const_cast<void*>(data)));
  }
}

// P22: an error that the application left pending is neither cleared nor blamed on the call; a refused call
// leaves none.
TEST_P(OnDevice, P22_TheRuntimesErrorStateIsTheApplications) {
  const Call call(problem(line()));
  // Long rows, for which every kernel that takes them must ask for its shared memory.
  const Call long_rows(problem("S40 D160"));
  const fa_forward_args long_args = long_rows.args();
  const fa_status long_status = kernel_of(long_args, row()).empty() ? FA_UNSUPPORTED : FA_OK;
  ASSERT_EQ(cudaSetDevice(9999), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(run(call.args(), nullptr), FA_OK) << fa_last_error();
  EXPECT_EQ(fa_forward_prepare(&long_args, static_cast<fa_version>(row().version)), long_status)
      << fa_last_error();
  EXPECT_EQ(run(long_args, nullptr), long_status) << fa_last_error();
  fa_forward_args bad = call.args();
  bad.k.data = nullptr;
  EXPECT_EQ(run(bad, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);

  EXPECT_EQ(run(bad, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  CHECK(cudaDeviceSynchronize());
}

// A workspace too large for the device is an error of its own, and the next call runs.
TEST_P(OnDevice, P22_OutOfDeviceMemory) {
  if (row().version != Version::V0) GTEST_SKIP() << "the row needs little workspace";
  // 2 x 10^11 scores: 800 GB.
  const Problem p = problem("B3 H16 S65536 D64");
  const std::size_t bytes = static_cast<std::size_t>(p.B * p.H * p.M * p.D) * size_of(p.dtype);
  const Memory q(Side::device, bytes), k(Side::device, bytes), v(Side::device, bytes),
      out(Side::device, bytes);
  ForwardArgs<float> args;
  args.q = bhsd(static_cast<float*>(q.data()), p.B, p.H, p.M, p.D);
  args.k = bhsd(static_cast<float*>(k.data()), p.B, p.H, p.M, p.D);
  args.v = bhsd(static_cast<float*>(v.data()), p.B, p.H, p.M, p.D);
  args.out = bhsd(static_cast<float*>(out.data()), p.B, p.H, p.M, p.D);
  EXPECT_THROW(forward(row().version, args), OutOfMemory);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  Call call(problem(line()));
  EXPECT_EQ(run_alone(call).size(), call.out.bits().size() + call.rows());
}

TEST_P(OnDevice, P19_ReportedSizeFiftyTimes) {
  Problem p = problem("B300 H1 M2048 N128 D128");
  if (row().version == Version::V1) p.B = 30;  // one block a head: 300 would take a minute
  // The rows whose tiles hold D64 alone would leave it to a stand-in, or to nobody.
  if (!takes(p, row())) p.D = p.Dv = 64;
  if (!takes(p, row())) GTEST_SKIP() << "the row rejects " << to_string(p);
  Call call(p);
  const fa_forward_args args = call.args();
  const std::size_t bytes = static_cast<std::size_t>(p.B * p.H * p.M * p.D) * size_of(p.dtype);
  std::vector<unsigned char> first(bytes), again(bytes);
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(run(args, nullptr), FA_OK) << fa_last_error();
    CHECK(
        cudaMemcpy(round == 0 ? first.data() : again.data(), call.out.data(), bytes, cudaMemcpyDeviceToHost));
    if (round == 0) continue;
    ASSERT_EQ(std::memcmp(first.data(), again.data(), bytes), 0) << "run " << round;
  }
}

// A thread that has never called CUDA.
TEST_P(OnDevice, AFreshThreadRuns) {
  Call call(problem(line()));
  const std::vector<std::uint32_t> want = run_alone(call);
  call.clear();
  fa_status status = FA_INTERNAL_ERROR;
  std::thread([&] { status = run(call.args(), nullptr); }).join();
  EXPECT_EQ(status, FA_OK);
  EXPECT_EQ(call.result(), want);
}

INSTANTIATE_TEST_SUITE_P(Rows, OnDevice, testing::ValuesIn(device_rows()), RowName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnDevice);

// P24: a library built for other architectures than the device's refuses, naming them. Run with
// FLASHATTN_TEST_OTHER_ARCHITECTURES=<what it was built for> on such a build.
TEST(OtherArchitectures, P24_EveryRowOnADeviceRefuses) {
  const char* built_for = std::getenv("FLASHATTN_TEST_OTHER_ARCHITECTURES");
  if (built_for == nullptr) GTEST_SKIP() << "skipped: this build has the device's architecture";
  ASSERT_TRUE(have_device());
  for (const Row& row : device_rows()) {
    SCOPED_TRACE(row.kernel);
    Problem p = parse_problem("B1 H2 S64 D64");
    p.dtype = row.dtype;
    const Call call(p);
    const fa_forward_args args = call.args();
    EXPECT_EQ(fa_forward(&args, static_cast<fa_version>(row.version), nullptr), FA_UNSUPPORTED);
    const std::string text = fa_last_error();
    EXPECT_NE(text.find(std::string("was built for ") + built_for), std::string::npos) << text;
    EXPECT_EQ(fa_forward(&args, FA_AUTO, nullptr), FA_UNSUPPORTED);
    for (const float x : call.out.get()) ASSERT_TRUE(std::isnan(x)) << "written";
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

}  // namespace
}  // namespace fa::test
