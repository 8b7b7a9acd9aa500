/// A problem in device memory, and everything that can compute it there.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bench/baselines/cudnn_sdpa.hpp"
#include "bench/device/clocks.hpp"
#include "bench/device/device_problem.hpp"
#include "bench/side.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/device_reference.hpp"

namespace fa::bench {

class DeviceFixture : public Fixture {
 public:
  DeviceFixture(const test::Problem& problem, std::size_t l2_bytes, const DeviceStream& stream);

  Choice explain(const RowPlan& row) override;
  void run_once(const RowPlan& row) override;
  std::string check(const RowPlan& row) override;
  Candidate candidate(const RowPlan& row) override;
  bool memory_bound() const override { return copies_.size() > 1; }
  int copies() const override { return static_cast<int>(copies_.size()); }

 private:
  /// Call i works on copy i mod copies(). Allocates whatever it needs before it returns.
  Enqueue call(const RowPlan& row);
  fa_forward_args args(const RowPlan& row, std::size_t copy);
  Choice explain_kernel(const RowPlan& row);
  Choice explain_cublas() const;
  Choice explain_cudnn();
  void* workspace(const std::string& whose, std::size_t bytes);

  test::Problem problem_;
  const DeviceStream& stream_;
  std::vector<std::unique_ptr<DeviceProblem>> copies_;
  std::optional<test::DeviceReference> cublas_;
  std::unique_ptr<CudnnSdpa> cudnn_;
  std::map<std::string, DeviceMemory> workspaces_;  // by kernel or baseline
  // For small problems: what all rows are held against.
  std::optional<test::Inputs> inputs_;
  std::optional<test::Reference> reference_;
};

}  // namespace fa::bench
