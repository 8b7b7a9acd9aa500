#include "tests/support/run.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/layout.hpp"

#if defined(FLASHATTN_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace fa::test {

bool prefill = true;

namespace {

// NaN in all three dtypes: what is read though it should not be, or not written though it should be, shows.
constexpr unsigned char kUnset = 0xFF;
// Guards of outputs differ from kUnset: a NaN copied from an input's gap would pass for an untouched guard.
constexpr unsigned char kOutputGuard = 0xA5;

std::size_t bytes_of(const Placed& placed, Dtype dtype) {
  return static_cast<std::size_t>(placed.elements) * size_of(dtype);
}

std::size_t misalignment(const Problem& problem, Dtype dtype) {
  return problem.layout == Layout::unaligned ? size_of(dtype) : 0;
}

/// Memory that the call reads. Checked against a copy afterwards.
class InputBuffer {
 public:
  InputBuffer(const char* name, std::size_t bytes) : name_(name), image_(bytes, std::byte{kUnset}) {}

  std::byte* image() { return image_.data(); }
  void place(Side side, std::size_t misalignment) {
    memory_.emplace(side, image_.size(), kUnset, misalignment);
    memory_->write(image_.data());
  }
  void* data() const { return memory_->data(); }

  std::string damage() const {
    std::string text = memory_->damage();
    std::vector<std::byte> now(image_.size());
    memory_->read(now.data());
    const auto [was, is] = std::mismatch(image_.begin(), image_.end(), now.begin());
    if (was != image_.end()) {
      text += (text.empty() ? "" : "; ") + ("changed at byte " + std::to_string(was - image_.begin()));
    }
    return text.empty() ? "" : std::string(name_) + ": " + text + "\n";
  }

 private:
  const char* name_;
  std::vector<std::byte> image_;
  std::optional<GuardedBuffer> memory_;
};

/// Memory that the call writes.
class OutputBuffer {
 public:
  OutputBuffer(const char* name, Side side, std::size_t bytes, std::size_t misalignment)
      : name_(name), memory_(side, bytes, kOutputGuard, misalignment) {
    if (prefill) memory_.write(std::vector<std::byte>(bytes, std::byte{kUnset}).data());
  }

  void* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(memory_.size());
    memory_.read(bytes.data());
    return bytes;
  }
  std::string guard_damage() const {
    const std::string text = memory_.damage();
    return text.empty() ? "" : std::string(name_) + ": " + text + "\n";
  }
  /// Where `bytes`, read back and with all that may be written set to kUnset, was written.
  std::string written(const std::vector<std::byte>& bytes) const {
    const auto at =
        std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{kUnset}; });
    if (!prefill || at == bytes.end()) return "";
    return std::string(name_) + ": written at byte " + std::to_string(at - bytes.begin()) + "\n";
  }

 private:
  const char* name_;
  GuardedBuffer memory_;
};

/// The stream a call goes to, and the wait for it.
class Queue {
 public:
  Queue(Side side, bool own_stream) : side_(side) {
#if defined(FLASHATTN_TEST_CUDA)
    if (side_ == Side::device && own_stream) {
      check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
#else
    static_cast<void>(own_stream);
#endif
  }
  ~Queue() {
#if defined(FLASHATTN_TEST_CUDA)
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
#endif
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  Stream stream() const {
    return stream_;
  }
  /// For everything on the device: copies to it may still be under way, and a non-blocking stream waits for
  /// none.
  void wait() const {
#if defined(FLASHATTN_TEST_CUDA)
    if (side_ == Side::device) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
#endif
  }

 private:
#if defined(FLASHATTN_TEST_CUDA)
  static void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
#endif

  [[maybe_unused]] Side side_;
  Stream stream_ = nullptr;
};

}  // namespace

RunResult run_forward(const Problem& problem, const Inputs& inputs, Version version, Side side) {
  return run_forward(problem, inputs, version, side, fa_forward);
}

RunResult run_forward(const Problem& problem, const Inputs& inputs, Version version, Side side,
                      ForwardCall call) {
  const Problem& p = problem;
  const PlacedProblem placed = place(p);
  const Dtype dtype = p.dtype, dtype_out = p.out_dtype();

  InputBuffer q(placed.one_buffer ? "packed q, k, v" : "q", bytes_of(placed.q, dtype));
  InputBuffer own_k("k", placed.one_buffer ? 0 : bytes_of(placed.k, dtype));
  InputBuffer own_v("v", placed.one_buffer ? 0 : bytes_of(placed.v, dtype));
  InputBuffer& k = placed.one_buffer ? q : own_k;
  InputBuffer& v = placed.one_buffer ? q : own_v;
  scatter(inputs.q.data(), placed.q, dtype, q.image());
  scatter(inputs.k.data(), placed.k, dtype, k.image());
  scatter(inputs.v.data(), placed.v, dtype, v.image());
  for (InputBuffer* buffer : {&q, &own_k, &own_v}) buffer->place(side, misalignment(p, dtype));
  OutputBuffer out("out", side, bytes_of(placed.out, dtype_out), misalignment(p, dtype_out));
  const std::size_t rows =
      static_cast<std::size_t>(p.B) * static_cast<std::size_t>(p.H) * static_cast<std::size_t>(p.M);
  OutputBuffer lse("lse", side, p.lse ? rows * sizeof(float) : 0, misalignment(p, Dtype::float32));

  const bool supply_workspace = (p.seed & 1) != 0, own_stream = (p.seed & 2) != 0,
             use_null = (p.seed & 4) != 0;
  const auto pointer = [&](void* data, const Placed& tensor) {
    return use_null && tensor.elements == 0 ? nullptr : data;
  };
  fa_forward_args args;
  detail::check(fa_forward_args_init(&args, sizeof args));
  args.q = c_tensor(pointer(q.data(), placed.q), placed.q, dtype);
  args.k = c_tensor(pointer(k.data(), placed.k), placed.k, dtype);
  args.v = c_tensor(pointer(v.data(), placed.v), placed.v, dtype);
  args.out = c_tensor(pointer(out.data(), placed.out), placed.out, dtype_out);
  args.lse = p.lse ? static_cast<float*>(lse.data()) : nullptr;
  set_options(args, p);

  std::optional<OutputBuffer> workspace;
  if (supply_workspace) {
    std::size_t bytes = 0;
    detail::check(fa_forward_workspace_size(&args, static_cast<fa_version>(version), &bytes));
    workspace.emplace("workspace", side, bytes, std::size_t{0});
    args.workspace = workspace->data();
    args.workspace_size = bytes;
  }

  const Queue queue(side, own_stream);
  queue.wait();
  const auto damage = [&] {
    std::string text;
    for (const InputBuffer* buffer : {&q, &own_k, &own_v}) text += buffer->damage();
    text += out.guard_damage() + lse.guard_damage();
    if (workspace) text += workspace->guard_damage();
    return text;
  };
  try {
    detail::check(call(&args, static_cast<fa_version>(version), queue.stream()));
  } catch (const Error& error) {
    if (error.status() == FA_CUDA_ERROR) throw;  // a launch may have failed half way
    if (!prefill) throw;                         // nothing to tell a write by
    queue.wait();
    std::string text = damage() + out.written(out.read()) + lse.written(lse.read());
    if (workspace) text += workspace->written(workspace->read());
    if (text.empty()) throw;
    throw std::logic_error(to_string(p) + "\nrefused (" + error.what() + "), but wrote:\n" + text);
  }
  queue.wait();

  RunResult result;
  std::vector<std::byte> bytes = out.read();
  result.got.out.resize(rows * static_cast<std::size_t>(p.Dv));
  gather(bytes.data(), placed.out, dtype_out, result.got.out.data());
  fill_elements(bytes.data(), placed.out, dtype_out, kUnset);
  result.guard_damage = damage() + out.written(bytes);
  if (p.lse) {
    const Placed flat = {
        {1, 1, 1, static_cast<std::int64_t>(rows)}, {0, 0, 0, 1}, 0, static_cast<std::int64_t>(rows)};
    result.got.lse.resize(rows);
    gather(lse.read().data(), flat, Dtype::float32, result.got.lse.data());
  }
  return result;
}

BackwardRunResult run_backward(const Problem& problem, const BackwardInputs& inputs, Version version,
                               Side side, BackwardCall call) {
  const Problem& p = problem;
  const PlacedBackward placed = place_backward(p);
  const PlacedProblem& forward = placed.forward;
  const Dtype dtype = p.dtype, dtype_gradient = p.gradient_dtype();

  InputBuffer q(forward.one_buffer ? "packed q, k, v" : "q", bytes_of(forward.q, dtype));
  InputBuffer own_k("k", forward.one_buffer ? 0 : bytes_of(forward.k, dtype));
  InputBuffer own_v("v", forward.one_buffer ? 0 : bytes_of(forward.v, dtype));
  InputBuffer& k = forward.one_buffer ? q : own_k;
  InputBuffer& v = forward.one_buffer ? q : own_v;
  InputBuffer out("out", bytes_of(forward.out, dtype)), dout("dout", bytes_of(placed.dout, dtype));
  const std::size_t rows = inputs.lse.size();
  InputBuffer lse("lse", rows * sizeof(float));
  scatter(inputs.in.q.data(), forward.q, dtype, q.image());
  scatter(inputs.in.k.data(), forward.k, dtype, k.image());
  scatter(inputs.in.v.data(), forward.v, dtype, v.image());
  scatter(inputs.out.data(), forward.out, dtype, out.image());
  scatter(inputs.dout.data(), placed.dout, dtype, dout.image());
  if (rows > 0) std::memcpy(lse.image(), inputs.lse.data(), rows * sizeof(float));
  for (InputBuffer* buffer : {&q, &own_k, &own_v, &out, &dout}) buffer->place(side, misalignment(p, dtype));
  lse.place(side, misalignment(p, Dtype::float32));

  const bool one = placed.one_gradient_buffer;
  const std::size_t shift = misalignment(p, dtype_gradient);
  OutputBuffer dq(one ? "packed dq, dk, dv" : "dq", side, bytes_of(placed.dq, dtype_gradient), shift);
  OutputBuffer own_dk("dk", side, one ? 0 : bytes_of(placed.dk, dtype_gradient), shift);
  OutputBuffer own_dv("dv", side, one ? 0 : bytes_of(placed.dv, dtype_gradient), shift);
  OutputBuffer& dk = one ? dq : own_dk;
  OutputBuffer& dv = one ? dq : own_dv;

  const bool supply_workspace = (p.seed & 1) != 0, own_stream = (p.seed & 2) != 0,
             use_null = (p.seed & 4) != 0;
  const auto tensor = [&](void* data, const Placed& at, Dtype of) {
    return c_tensor(use_null && at.elements == 0 ? nullptr : data, at, of);
  };
  fa_backward_args args;
  detail::check(fa_backward_args_init(&args, sizeof args));
  args.q = tensor(q.data(), forward.q, dtype);
  args.k = tensor(k.data(), forward.k, dtype);
  args.v = tensor(v.data(), forward.v, dtype);
  args.out = tensor(out.data(), forward.out, dtype);
  args.dout = tensor(dout.data(), placed.dout, dtype);
  args.dq = tensor(dq.data(), placed.dq, dtype_gradient);
  args.dk = tensor(dk.data(), placed.dk, dtype_gradient);
  args.dv = tensor(dv.data(), placed.dv, dtype_gradient);
  args.lse = use_null && rows == 0 ? nullptr : static_cast<const float*>(lse.data());
  set_options(args, p);

  std::optional<OutputBuffer> workspace;
  if (supply_workspace) {
    std::size_t bytes = 0;
    detail::check(fa_backward_workspace_size(&args, static_cast<fa_version>(version), &bytes));
    workspace.emplace("workspace", side, bytes, std::size_t{0});
    args.workspace = workspace->data();
    args.workspace_size = bytes;
  }

  const Queue queue(side, own_stream);
  queue.wait();
  const auto damage = [&] {
    std::string text;
    for (const InputBuffer* buffer : {&q, &own_k, &own_v, &out, &dout, &lse}) text += buffer->damage();
    for (const OutputBuffer* buffer : {&dq, &own_dk, &own_dv}) text += buffer->guard_damage();
    if (workspace) text += workspace->guard_damage();
    return text;
  };
  try {
    detail::check(call(&args, static_cast<fa_version>(version), queue.stream()));
  } catch (const Error& error) {
    if (error.status() == FA_CUDA_ERROR || !prefill) throw;  // as in run_forward
    queue.wait();
    std::string text = damage();
    for (const OutputBuffer* buffer : {&dq, &own_dk, &own_dv}) text += buffer->written(buffer->read());
    if (workspace) text += workspace->written(workspace->read());
    if (text.empty()) throw;
    throw std::logic_error(to_string(p) + "\nrefused (" + error.what() + "), but wrote:\n" + text);
  }
  queue.wait();

  BackwardRunResult result;
  result.got.dq.resize(inputs.in.q.size());
  result.got.dk.resize(inputs.in.k.size());
  result.got.dv.resize(inputs.in.v.size());
  std::vector<std::byte> dq_bytes = dq.read(), dk_bytes = own_dk.read(), dv_bytes = own_dv.read();
  const auto take = [&](std::vector<std::byte>& bytes, const Placed& at, std::vector<float>& to) {
    gather(bytes.data(), at, dtype_gradient, to.data());
    fill_elements(bytes.data(), at, dtype_gradient, kUnset);
  };
  take(dq_bytes, placed.dq, result.got.dq);
  take(one ? dq_bytes : dk_bytes, placed.dk, result.got.dk);
  take(one ? dq_bytes : dv_bytes, placed.dv, result.got.dv);
  result.guard_damage = damage() + dq.written(dq_bytes) + own_dk.written(dk_bytes) + own_dv.written(dv_bytes);
  return result;
}

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  std::thread thread;
};

Watchdog::Watchdog(double seconds, std::string what) : state_(new State) {
  state_->thread = std::thread([state = state_, seconds, what = std::move(what)] {
    std::unique_lock<std::mutex> lock(state->mutex);
    if (state->wake.wait_for(lock, std::chrono::duration<double>(seconds), [state] { return state->done; })) {
      return;
    }
    std::fprintf(stderr, "watchdog: not finished after %g s: %s\n", seconds, what.c_str());
    std::fflush(stderr);
    std::_Exit(124);  // whatever hangs would also hang the destructors
  });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->done = true;
  }
  state_->wake.notify_one();
  state_->thread.join();
  delete state_;
}

}  // namespace fa::test
