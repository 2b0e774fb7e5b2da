#include <chrono>
#include <optional>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "support/try.h"
#include "tuner/audit/auditor.h"
#include "tuner/worker/serve.h"

namespace kernwright {
namespace {

class DeviceRunnerFactory final : public RunnerFactory {
 public:
  Result<void> start(const detail::HelloRequest& hello,
                     std::shared_ptr<Compiler> compiler) override {
    AuditorOptions audit;
    audit.own_pids.assign(hello.own_pids.begin(), hello.own_pids.end());
    audit.cache_root = hello.cache_root;
    auditor_.emplace(hello.uuid, std::move(audit));
    KW_ASSIGN(device_, open_cuda_device(hello.device));
    // This pool only forwards requests: the tuning process compiles, with a deadline for each.
    pool_ = std::make_unique<CompilePool>(
        std::move(compiler),
        CompilePoolOptions{.threads = 1, .deadline = std::chrono::minutes(10)});
    KW_ASSIGN(data_ops_, make_device_data_ops(*device_, *pool_));
    auditor_->watch(*device_, *pool_);
    return {};
  }

  const DeviceProfile& profile() const override { return device_->profile(); }

  Result<std::unique_ptr<Runner>> open(const Catalog& catalog, const BoundProblem& problem,
                                       DeviceRunnerOptions options) override {
    options.disposable = true;
    options.audit = [this](const auto& released) { return auditor_->look(released); };
    return open_device_runner(*device_, *data_ops_, problem, catalog, *pool_, options);
  }

 private:
  std::optional<Auditor> auditor_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<CompilePool> pool_;
  std::unique_ptr<DataOps> data_ops_;
};

}  // namespace

std::unique_ptr<RunnerFactory> make_device_runner_factory() {
  return std::make_unique<DeviceRunnerFactory>();
}

}  // namespace kernwright
