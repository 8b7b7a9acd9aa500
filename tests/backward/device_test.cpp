/// What only a device has, for backward: streams, graphs, sides, the runtime's error state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/backward/rows.hpp"

namespace fa::test {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

#define CHECK(call) check(call, #call)

std::vector<Row> device_rows() {
  std::vector<Row> rows = backward_rows();
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

/// A deterministic problem with its tensors on the current device.
struct Call {
  Problem problem;
  Arrays arrays;

  explicit Call(const Problem& p) : problem(p), arrays(p, make_backward_inputs(p), Side::device) {
    CHECK(cudaDeviceSynchronize());
  }
  fa_backward_args args() const { return arrays.args(problem); }
  void clear() {
    for (Array* gradient : {&arrays.dq, &arrays.dk, &arrays.dv}) gradient->fill(0xFF);
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<std::uint32_t> result() const {
    CHECK(cudaDeviceSynchronize());
    std::vector<std::uint32_t> bits = arrays.dq.bits();
    for (const Array* gradient : {&arrays.dk, &arrays.dv}) {
      const std::vector<std::uint32_t> more = gradient->bits();
      bits.insert(bits.end(), more.begin(), more.end());
    }
    return bits;
  }
};

class BackwardOnDevice : public RowSuite {
 protected:
  void SetUp() override {
    RowSuite::SetUp();
    if (!IsSkipped()) {
      CHECK(cudaSetDevice(0));
      ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    }
  }
  fa_status run(const fa_backward_args& args, cudaStream_t stream) const {
    return fa_backward(&args, static_cast<fa_version>(row().version), stream);
  }
  std::vector<std::uint32_t> run_alone(Call& call) const {
    call.clear();
    EXPECT_EQ(run(call.args(), nullptr), FA_OK) << fa_last_error();
    return call.result();
  }
  const char* line() const { return "B2 H4/2 S160 D64 causal deterministic"; }
};

// The input arrives on the stream just before the call; nothing but the stream is waited for.
TEST_P(BackwardOnDevice, P21_WorkStaysOnItsStream) {
  Call call(problem(line()));
  const std::vector<std::uint32_t> want = run_alone(call);
  const Problem& p = call.problem;
  const std::size_t bytes = static_cast<std::size_t>(p.B * p.H * p.M * p.Dv) * size_of(p.dtype);
  const Memory late(Side::device, bytes);
  CHECK(cudaMemcpy(late.data(), call.arrays.dout.data(), bytes, cudaMemcpyDeviceToDevice));
  call.arrays.dout.fill(0);
  call.clear();
  const NonBlockingStream stream;
  CHECK(cudaMemcpyAsync(call.arrays.dout.data(), late.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()));
  ASSERT_EQ(run(call.args(), stream.get()), FA_OK) << fa_last_error();
  stream.wait();
  EXPECT_TRUE(call.result() == want);
}

// Captured once, replayed with other data: with the library's own workspace and with the caller's.
TEST_P(BackwardOnDevice, P21_GraphReplaySeesNewData) {
  for (const bool own_workspace : {true, false}) {
    SCOPED_TRACE(own_workspace ? "the library's workspace" : "the caller's workspace");
    Call call(problem(line()));
    fa_backward_args args = call.args();
    std::size_t bytes = 0;
    ASSERT_EQ(fa_backward_workspace_size(&args, static_cast<fa_version>(row().version), &bytes), FA_OK);
    const Memory workspace(Side::device, bytes);
    if (!own_workspace && bytes > 0) {
      args.workspace = workspace.data();
      args.workspace_size = bytes;
    }
    ASSERT_EQ(fa_backward_prepare(&args, static_cast<fa_version>(row().version)), FA_OK) << fa_last_error();

    const NonBlockingStream stream;
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
    const fa_status status = run(args, stream.get());
    CHECK(cudaStreamEndCapture(stream.get(), &graph));
    ASSERT_EQ(status, FA_OK) << fa_last_error();
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));

    for (const std::uint64_t seed : {11u, 12u}) {
      Problem other = call.problem;
      other.seed = seed;
      const BackwardInputs inputs = make_backward_inputs(other);
      call.arrays.q.set(inputs.in.q);
      call.arrays.k.set(inputs.in.k);
      call.arrays.v.set(inputs.in.v);
      call.arrays.out.set(inputs.out);
      call.arrays.dout.set(inputs.dout);
      call.arrays.lse.write(0, inputs.lse.data(), inputs.lse.size() * sizeof(float));
      const std::vector<std::uint32_t> want = run_alone(call);
      call.clear();
      CHECK(cudaGraphLaunch(exec, stream.get()));
      CHECK(cudaGraphLaunch(exec, stream.get()));
      stream.wait();
      EXPECT_TRUE(call.result() == want) << "seed " << seed;
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
}

// Without the deterministic mode what is summed by atomics must start from 0 in every replay.
TEST_P(BackwardOnDevice, P21_ReplayedSumsStartFromZero) {
  Problem p = problem("B2 H4/2 M160 N300 D64 causal");
  const BackwardInputs inputs = make_backward_inputs(p);
  const BackwardReference reference = make_backward_reference(p, inputs);
  Call call(p);
  const fa_backward_args args = call.args();
  ASSERT_EQ(fa_backward_prepare(&args, static_cast<fa_version>(row().version)), FA_OK) << fa_last_error();
  const NonBlockingStream stream;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  const fa_status status = run(args, stream.get());
  CHECK(cudaStreamEndCapture(stream.get(), &graph));
  ASSERT_EQ(status, FA_OK) << fa_last_error();
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int replay = 0; replay < 3; ++replay) {
    call.clear();
    CHECK(cudaGraphLaunch(exec, stream.get()));
    stream.wait();
    const Gradients<float> got = {call.arrays.dq.get(), call.arrays.dk.get(), call.arrays.dv.get()};
    EXPECT_EQ(check_backward(p, reference, inputs, got), "") << "replay " << replay;
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// Page-locked and managed memory are on the device's side (docs/conventions.md, 11 and 13), and so may be the
// workspace, in which dQ is summed by atomics; a page of plain host memory is refused by name.
TEST_P(BackwardOnDevice, P12_WorkspaceOfEveryKindOfMemory) {
  for (const char* words : {"D64", "D66 deterministic", "D128", "D33"}) {
    const Problem p = problem(std::string("B2 H4/2 M70 N300 causal ") + words);
    const BackwardInputs inputs = make_backward_inputs(p);
    const BackwardReference reference = make_backward_reference(p, inputs);
    Call call(p);
    fa_backward_args args = call.args();
    std::size_t bytes = 0;
    ASSERT_EQ(fa_backward_workspace_size(&args, static_cast<fa_version>(row().version), &bytes), FA_OK);
    ASSERT_GT(bytes, 0u);
    args.workspace_size = bytes;
    const auto run_in = [&](void* workspace, const char* kind) {
      SCOPED_TRACE(std::string(kind) + ", " + to_string(p));
      args.workspace = workspace;
      for (const int fill : {0x00, 0xff}) {
        std::memset(workspace, fill, bytes);
        call.clear();
        ASSERT_EQ(run(args, nullptr), FA_OK) << fa_last_error();
        CHECK(cudaDeviceSynchronize());
        const Gradients<float> got = {call.arrays.dq.get(), call.arrays.dk.get(), call.arrays.dv.get()};
        EXPECT_EQ(check_backward(p, reference, inputs, got), "") << "filled with " << fill;
      }
    };
    void* memory = nullptr;
    CHECK(cudaMallocHost(&memory, bytes));
    run_in(memory, "page-locked");
    CHECK(cudaFreeHost(memory));
    CHECK(cudaMallocManaged(&memory, bytes));
    run_in(memory, "managed");
    CHECK(cudaFree(memory));

    const Memory plain(Side::host, bytes);
    args.workspace = plain.data();
    call.clear();
    EXPECT_EQ(run(args, nullptr), FA_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(fa_last_error()),
              "dq is in memory of device 0 but workspace is in host memory: all of them must be on one side");
    for (const float x : call.arrays.dq.get()) ASSERT_TRUE(std::isnan(x)) << "written";
  }
}

// No prepare, no call before it (ctest runs it in a process of its own).
TEST_P(BackwardOnDevice, P21_FirstCallUnderCapture) {
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
  EXPECT_TRUE(got == run_alone(call));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// Host threads on streams of their own, each with its own problem.
TEST_P(BackwardOnDevice, P21_TwoHostThreadsOnTwoStreams) {
  Call first(problem("B2 H4/2 S160 D64 causal deterministic seed 5"));
  Call second(problem("B1 H6/3 S97 D64 deterministic seed 6"));
  const std::vector<std::uint32_t> want_first = run_alone(first), want_second = run_alone(second);
  first.clear();
  second.clear();
  const auto repeat = [this](const Call& call, fa_status& worst) {
    const NonBlockingStream stream;
    for (int i = 0; i < 50; ++i) worst = std::max(worst, run(call.args(), stream.get()));
    stream.wait();
  };
  fa_status first_status = FA_OK, second_status = FA_OK;
  std::thread one(repeat, std::cref(first), std::ref(first_status));
  std::thread two(repeat, std::cref(second), std::ref(second_status));
  one.join();
  two.join();
  EXPECT_EQ(first_status, FA_OK);
  EXPECT_EQ(second_status, FA_OK);
  EXPECT_TRUE(first.result() == want_first);
  EXPECT_TRUE(second.result() == want_second);
}

// Each tensor in turn on the other side: refused by name, nothing written.
TEST_P(BackwardOnDevice, P20_TensorsOnBothSidesAreRefused) {
  Call call(problem(line()));
  call.clear();
  const Arrays host(call.problem, make_backward_inputs(call.problem), Side::host);
  const fa_backward_args on_host = host.args(call.problem);
  const char* const names[] = {"q", "k", "v", "out", "dout", "dk", "dv"};
  for (int who = 0; who < 7; ++who) {
    fa_backward_args args = call.args();
    fa_tensor* const mine[] = {&args.q, &args.k, &args.v, &args.out, &args.dout, &args.dk, &args.dv};
    const fa_tensor* const theirs[] = {&on_host.q,    &on_host.k,  &on_host.v, &on_host.out,
                                       &on_host.dout, &on_host.dk, &on_host.dv};
    mine[who]->data = theirs[who]->data;
    EXPECT_EQ(run(args, nullptr), FA_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(fa_last_error()), std::string("dq is in memory of device 0 but ") + names[who] +
                                                " is in host memory: all of them must be on one side");
  }
  fa_backward_args args = call.args();
  args.lse = on_host.lse;
  EXPECT_EQ(run(args, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_NE(std::string(fa_last_error()).find("lse is in host memory"), std::string::npos) << fa_last_error();
  EXPECT_EQ(run(on_host, nullptr), FA_UNSUPPORTED);
  EXPECT_NE(std::string(fa_last_error()).find("runs on a CUDA device, but the tensors are in host memory"),
            std::string::npos)
      << fa_last_error();
  const fa_backward_args on_device = call.args();
  EXPECT_EQ(fa_backward(&on_device, FA_CPU, nullptr), FA_UNSUPPORTED);
  for (const float x : call.arrays.dq.get()) ASSERT_TRUE(std::isnan(x)) << "written";
}

// An error that the application left pending is neither cleared nor blamed on the call; a refused call leaves
// none.
TEST_P(BackwardOnDevice, P22_TheRuntimesErrorStateIsTheApplications) {
  const Call call(problem(line()));
  ASSERT_EQ(cudaSetDevice(9999), cudaErrorInvalidDevice);
  EXPECT_EQ(run(call.args(), nullptr), FA_OK) << fa_last_error();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  fa_backward_args bad = call.args();
  bad.lse = nullptr;
  EXPECT_EQ(run(bad, nullptr), FA_INVALID_ARGUMENT);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  CHECK(cudaDeviceSynchronize());
}

// The same bits over a thousand runs, in every class of tiles, where dQ of a row is a sum over dozens of key
// tiles. How often the same call without the mode differs is printed: had it never, this would prove little.
TEST_P(BackwardOnDevice, P19_AThousandRunsAreOne) {
  for (const char* sizes :
       {"B1 H8/2 M160 N2000 D64 causal", "B1 H4/2 M160 N1000 D128", "H2 M100 N1000 D200"}) {
    SCOPED_TRACE(sizes);
    Call call(problem(std::string(sizes) + " deterministic"));
    const auto bytes = [&call] {
      std::vector<unsigned char> all = call.arrays.dq.bytes();
      for (const Array* gradient : {&call.arrays.dk, &call.arrays.dv}) {
        const std::vector<unsigned char> more = gradient->bytes();
        all.insert(all.end(), more.begin(), more.end());
      }
      return all;
    };
    run_alone(call);
    const std::vector<unsigned char> want = bytes();
    for (int round = 0; round < 1000; ++round) {
      ASSERT_EQ(run(call.args(), nullptr), FA_OK) << fa_last_error();
      ASSERT_TRUE(bytes() == want) << "run " << round;
    }
    call.problem.deterministic = false;
    run_alone(call);
    const std::vector<unsigned char> once = bytes();
    int differ = 0;
    for (int round = 0; round < 100; ++round) {
      ASSERT_EQ(run(call.args(), nullptr), FA_OK) << fa_last_error();
      differ += bytes() != once ? 1 : 0;
    }
    std::printf("%s: without the deterministic mode %d of 100 runs differ\n", sizes, differ);
  }
}

TEST_P(BackwardOnDevice, AutoTakesTheRow) {
  const Problem p = problem(line());
  const Row any = {Version::Auto, p.dtype, Side::device, true, "Auto"};
  EXPECT_EQ(explain_problem(p, any).kernel, row().kernel);
  EXPECT_TRUE(check_row(p, any));
}

INSTANTIATE_TEST_SUITE_P(Rows, BackwardOnDevice, testing::ValuesIn(device_rows()), RowName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackwardOnDevice);

}  // namespace
}  // namespace fa::test
