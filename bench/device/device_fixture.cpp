#include "bench/device/device_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bench/ablations.hpp"
#include "bench/device/baselines.hpp"
#include "bench/one_line.hpp"
#include "bench/work.hpp"

namespace fa::bench {

namespace {

using test::Problem;

// While an H200 moves a byte to or from memory it makes some 155 operations in 16 bits, or 12 in fp32. A
// problem of a third as many is bound by memory whatever the kernel.
constexpr double kMemoryBound16 = 50, kMemoryBound32 = 4;
constexpr double kCachesRotated = 4;  // bytes of all copies, in L2 caches
constexpr double kMostCopies = 48;    // a sample of 50 calls comes to all of them

// Up to here the whole result is compared; the oracle takes about a second on a few cores.
constexpr double kWholeCheckFlops = 2e9;

/// 1: the inputs do not rotate.
int copies_of(const Problem& problem, std::size_t l2_bytes) {
  const double bytes = least_bytes(problem);
  const double bound = problem.dtype == Dtype::float32 ? kMemoryBound32 : kMemoryBound16;
  const double wanted = kCachesRotated * static_cast<double>(l2_bytes) / std::max(1.0, bytes);
  // Copies too small to leave the cache would measure the cache all the same.
  if (problem.flops() >= bound * bytes || wanted > 2 * kMostCopies) return 1;
  return static_cast<int>(std::clamp(std::ceil(wanted), 2.0, kMostCopies));
}

fa_version version_of(const RowPlan& row) {
  return static_cast<fa_version>(row.version);
}

}  // namespace

DeviceFixture::DeviceFixture(const Problem& problem, std::size_t l2_bytes, const DeviceStream& stream)
    : problem_(problem), stream_(stream) {
  const int copies = copies_of(problem, l2_bytes);
  for (int n = 0; n < copies; ++n) {
    copies_.push_back(std::make_unique<DeviceProblem>(problem, static_cast<std::uint64_t>(n), stream));
  }
  stream_.wait();
}

Choice DeviceFixture::explain(const RowPlan& row) {
  if (row.baseline == kCublasSoftmax) return explain_cublas();
  if (row.baseline == kCudnn) return explain_cudnn();
  return explain_kernel(row);
}

Choice DeviceFixture::explain_kernel(const RowPlan& row) {
  fa_forward_plan plan = {};
  plan.size = sizeof plan;
  char text[2048] = "";
  const fa_status status =
      fa_forward_explain(&copies_[0]->args(), version_of(row), &plan, text, sizeof text, nullptr);
  if (status == FA_UNSUPPORTED) return {false, "", 0, one_line(fa_last_error())};
  detail::check(status);
  if (plan.runs == 0) return {false, "", 0, one_line(text)};
  if (row.role != RowPlan::Role::ablation) return {true, plan.kernel, 0, ""};
  if (plan.version != version_of(row)) return {false, "", 0, one_line(text)};  // a stand-in has no variants
  const std::string why_not = why_no_ablation(row.ablation, copies_[0]->args());
  if (!why_not.empty()) return {false, "", 0, one_line(why_not)};
  return {true, ablation_at(row.ablation).what, 0, ""};
}

Choice DeviceFixture::explain_cublas() const {
  const std::string why_not = why_no_cublas_softmax(problem_);
  if (!why_not.empty()) return {false, "", 0, why_not};
  return {true, kCublasSoftmax, 0, ""};
}

Choice DeviceFixture::explain_cudnn() {
  std::string why_not = why_no_cudnn(problem_);
  if (!why_not.empty()) return {false, "", 0, why_not};
  if (!cudnn_) {
    try {
      cudnn_ = CudnnSdpa::create(bench::shape_of(problem_), problem_.lse, &why_not);
    } catch (const std::runtime_error& error) {
      why_not = error.what();
    }
    if (!cudnn_) return {false, "", 0, one_line(why_not)};
  }
  return {true, "cudnn " + cudnn_version(nullptr) + ", " + cudnn_->engine(), 0, ""};
}

void* DeviceFixture::workspace(const std::string& whose, std::size_t bytes) {
  const auto found = workspaces_.find(whose);
  if (found != workspaces_.end()) return found->second.data();
  DeviceMemory& memory = workspaces_.emplace(whose, bytes).first->second;
  check_cuda(cudaMemsetAsync(memory.data(), 0xff, bytes, stream_), "cudaMemsetAsync");
  stream_.wait();
  return memory.data();
}

fa_forward_args DeviceFixture::args(const RowPlan& row, std::size_t copy) {
  fa_forward_args args = copies_[copy]->args();
  detail::check(fa_forward_workspace_size(&args, version_of(row), &args.workspace_size));
  args.workspace = workspace(name_of(row.version), args.workspace_size);
  return args;
}

Enqueue DeviceFixture::call(const RowPlan& row) {
  // Everything that is not the call itself happens here: its host time is part of Clock::events.
  std::vector<fa_forward_args> args;
  for (std::size_t copy = 0; copy < copies_.size(); ++copy) {
    args.push_back(row.baseline.empty() ? this->args(row, copy) : copies_[copy]->args());
  }
  const auto at = [](const std::vector<fa_forward_args>& all, std::int64_t i) -> const fa_forward_args& {
    return all[static_cast<std::size_t>(i) % all.size()];
  };
  if (row.baseline == kCublasSoftmax) {
    if (!cublas_) cublas_.emplace(test::shape_of(problem_));
    void* const space = workspace(kCublasSoftmax, cublas_->workspace_bytes());
    return [this, args, at, space](std::int64_t i) {
      const fa_forward_args& a = at(args, i);
      cublas_->run(a.q.data, a.k.data, a.v.data, a.out.data, a.lse, space, stream_);
    };
  }
  if (row.baseline == kCudnn) {
    void* const space = workspace(kCudnn, cudnn_->workspace_bytes());
    return [this, args, at, space](std::int64_t i) {
      const fa_forward_args& a = at(args, i);
      cudnn_->run(a.q.data, a.k.data, a.v.data, a.out.data, a.lse, space, stream_);
    };
  }
  if (row.role == RowPlan::Role::ablation) {
    return
        [this, args, at, index = row.ablation](std::int64_t i) { run_ablation(index, at(args, i), stream_); };
  }
  return [this, args, at, version = version_of(row)](std::int64_t i) {
    detail::check(fa_forward(&at(args, i), version, stream_));
  };
}

void DeviceFixture::run_once(const RowPlan& row) {
  copies_[0]->spoil_outputs(stream_);
  call(row)(0);
  stream_.wait();
}

std::string DeviceFixture::check(const RowPlan& row) {
  const Rule rule =
      !row.baseline.empty() && problem_.dtype != Dtype::float32 ? Rule::sixteen_bit_baseline : Rule::house;
  if (rule == Rule::house && problem_.flops() <= kWholeCheckFlops) {
    if (!inputs_) {
      inputs_ = copies_[0]->inputs(stream_);
      reference_ = test::make_reference(problem_, *inputs_);
    }
    return test::check_forward(problem_, *reference_, *inputs_, copies_[0]->outputs(stream_));
  }
  const auto read = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    return copies_[0]->row(b, h, i, stream_);
  };
  return check_rows(problem_, copies_[0]->input_reader(stream_), read, rule);
}

Candidate DeviceFixture::candidate(const RowPlan& row) {
  return {row.key, row.clock, device_clock(row.clock, stream_, call(row))};
}

}  // namespace fa::bench
