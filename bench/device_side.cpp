#include <algorithm>
#include <memory>
#include <stdexcept>

#include "bench/ablations.hpp"
#include "bench/device/baselines.hpp"
#include "bench/device/cublas.hpp"
#include "bench/device/device_backward.hpp"
#include "bench/device/device_ceilings.hpp"
#include "bench/device/device_fixture.hpp"
#include "bench/device/host_cost.hpp"
#include "bench/tools/device_facts.hpp"

namespace fa::bench {

namespace {

using test::Problem;

constexpr Dtype kDtypes[] = {Dtype::float32, Dtype::float16, Dtype::bfloat16};

/// The rungs of this build that run on a device, in the kernel table's order.
std::vector<Version> rungs(Dtype dtype, Pass pass = Pass::forward) {
  std::vector<Version> versions;
  for (std::int32_t i = 0; i < fa_kernel_count(); ++i) {
    fa_kernel_info info = {};
    info.size = sizeof info;
    detail::check(fa_kernel_info_get(i, &info));
    if (info.pass != static_cast<fa_pass>(pass) || info.version == FA_CPU || info.built == 0) continue;
    if (static_cast<Dtype>(info.dtype) == dtype) versions.push_back(static_cast<Version>(info.version));
  }
  return versions;
}

bool contains(const std::vector<Version>& versions, Version version) {
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

/// "V2/graph"
std::string key_of(const std::string& name, Clock clock) {
  return name + "/" + name_of(clock);
}

class DeviceSide : public Side {
 public:
  explicit DeviceSide(const cudaDeviceProp& device) : device_(device), ceilings_(device, stream_) {}

  std::string name() const override { return "device"; }

  std::vector<std::pair<std::string, std::string>> facts() override {
    Facts facts = device_facts();
    std::string cudnn, why_not;
    cudnn = cudnn_version(&why_not);
    facts.emplace_back("cublas", cublas_version());
    facts.emplace_back("cudnn", cudnn.empty() ? why_not : cudnn);
    facts.emplace_back("device memory", std::to_string(device_.totalGlobalMem >> 20) + " MiB, L2 " +
                                            std::to_string(device_.l2CacheSize >> 20) + " MiB");
    return facts;
  }

  std::vector<Ceiling> ceilings(const Selection&, bool all) override {
    std::vector<Ceiling> result;
    for (const Dtype dtype : kDtypes) result.push_back(ceilings_.gemm(dtype));
    result.push_back(ceilings_.read());
    result.push_back(ceilings_.copy());
    if (!all) return result;
    for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16})
      result.push_back(ceilings_.gemm_sustained(dtype));
    return result;
  }

  Ceiling compute_ceiling(Dtype dtype, int) override { return ceilings_.gemm(dtype); }
  Ceiling memory_ceiling(int) override { return ceilings_.read(); }

  std::vector<std::string> host_costs(const Selection& selection) const override {
    std::vector<std::string> keys;
    for (const Dtype dtype : kDtypes) {
      std::vector<Version> versions = rungs(dtype);
      if (versions.empty()) continue;
      versions.push_back(Auto);
      for (const Version version : versions) {
        if (!selection.versions.empty() && !contains(selection.versions, version)) continue;
        keys.push_back(std::string(name_of(version)) + "/" + name_of(dtype));
      }
    }
    return keys;
  }

  HostCost host_cost(const std::string& key) override {
    for (const Dtype dtype : kDtypes) {
      for (const Version version : {V0, V1, V2, V3, V4, V5, V6, V7, V8, Auto}) {
        if (key == std::string(name_of(version)) + "/" + name_of(dtype))
          return device_host_cost(version, dtype, stream_);
      }
    }
    throw std::runtime_error("no rung of a device");
  }

  std::vector<RowPlan> plan(const Problem& problem, const Selection& selection, bool) override {
    if (!selection.ablations.empty()) return plan_ablations(problem, selection);
    const Pass pass = problem.passes == test::Passes::forward ? Pass::forward : Pass::backward;
    const std::vector<Version> versions =
        selection.versions.empty() ? rungs(problem.dtype, pass) : selection.versions;
    const std::vector<Clock> clocks = clocks_of(selection);
    std::vector<const char*> baselines = {kCublasSoftmax};
    if (problem.dtype != Dtype::float32) baselines.push_back(kCudnn);

    std::vector<RowPlan> rows;
    for (const Clock clock : clocks) {
      std::vector<std::string> others;
      for (const char* baseline : baselines) others.push_back(key_of(baseline, clock));
      for (const Version version : versions) {
        rows.push_back(
            {key_of(name_of(version), clock), RowPlan::Role::kernel, version, "", 0, clock, others});
      }
      for (const char* baseline : baselines) {
        rows.push_back({key_of(baseline, clock), RowPlan::Role::baseline, Auto, baseline, 0, clock, {}});
      }
      if (versions.empty()) continue;
      // The highest rung: on a ladder the quickest, so that its noise is the one that matters.
      const std::string original = key_of(name_of(versions.back()), clock);
      rows.push_back({"self/" + original, RowPlan::Role::self, versions.back(), "", 0, clock, {original}});
    }
    return rows;
  }

  std::unique_ptr<Fixture> fixture(const Problem& problem) override {
    if (problem.passes != test::Passes::forward) return device_backward_fixture(problem, stream_);
    return std::make_unique<DeviceFixture>(problem, static_cast<std::size_t>(device_.l2CacheSize), stream_);
  }

  double setup_seconds(const Problem& problem) const override {
    constexpr double kAnyway = 0.2,
                     kSecondsPerByte = 2e-11;  // allocation, cuDNN's choice of an engine, the check
    return kAnyway + kSecondsPerByte * problem.bytes();
  }

  /// Enough heads to fill some of the device; the baselines are never the slow ones.
  std::optional<Problem> pilot(const Problem& problem, const RowPlan& row) const override {
    if (!row.baseline.empty()) return std::nullopt;
    Problem small = problem;
    small.B = 1;
    small.H = small.Hk = std::min<std::int64_t>(problem.B * problem.H, 64);
    small.M = std::min<std::int64_t>(problem.M, 512);
    small.N = problem.M == problem.N ? small.M : std::min<std::int64_t>(problem.N, 4096);
    small.mask = Mask::full();
    small.layout = test::Layout::bhsd;
    return small;
  }

  DefaultRun default_run() const override {
    return {.sets = {"ladder"},
            .full = {"ladder", "targets_graph", "targets_forward", "gpt2_small", "llama3_8b", "mistral_7b",
                     "gemma2_9b", "qwen2_5_7b"},
            .protocol = full_protocol(),
            .run_seconds = 400,
            .setup_seconds = 0,
            .light_first = true};
  }

 private:
  static std::vector<Clock> clocks_of(const Selection& selection) {
    return selection.clocks.empty() ? std::vector<Clock>{Clock::graph} : selection.clocks;
  }

  /// Every rung that has variants for the problem, once more for its noise, and the variants.
  static std::vector<RowPlan> plan_ablations(const Problem& problem, const Selection& selection) {
    std::vector<RowPlan> rows;
    for (const Clock clock : clocks_of(selection)) {
      for (const Version version : selection.ablations) {
        const std::string rung = key_of(name_of(version), clock);
        const std::vector<Ablation> variants = ablations_of(version, selection, problem);
        if (variants.empty()) continue;
        rows.push_back({rung, RowPlan::Role::kernel, version, "", 0, clock, {}});
        rows.push_back({"self/" + rung, RowPlan::Role::self, version, "", 0, clock, {rung}});
        for (const Ablation& variant : variants) {
          rows.push_back({key_of(variant.name, clock),
                          RowPlan::Role::ablation,
                          version,
                          "",
                          0,
                          clock,
                          {rung},
                          variant.index});
        }
      }
    }
    return rows;
  }

  cudaDeviceProp device_;
  DeviceStream stream_;
  DeviceCeilings ceilings_;
};

}  // namespace

std::unique_ptr<Side> device_side(std::string* why_not) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    *why_not = std::string("no CUDA device: ") +
               (error == cudaSuccess ? "the driver shows none" : cudaGetErrorString(error));
    return nullptr;
  }
  int current = 0;
  cudaDeviceProp device;
  check_cuda(cudaGetDevice(&current), "cudaGetDevice");
  check_cuda(cudaGetDeviceProperties(&device, current), "cudaGetDeviceProperties");
  return std::make_unique<DeviceSide>(device);
}

}  // namespace fa::bench
