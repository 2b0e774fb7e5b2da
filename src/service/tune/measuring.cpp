#include "service/tune/measuring.h"

#include <utility>

#include "device/cuda/cuda_device.h"
#include "support/processes/find_tool.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/audit/auditor.h"
#include "tuner/worker/serve.h"
#include "tuner/worker/worker.h"
#include "tuner/worker/worker_runner.h"

namespace kernwright {
namespace {

class WorkerMeasuring final : public Measuring {
 public:
  WorkerMeasuring(MeasuringContext context, std::unique_ptr<Worker> worker)
      : context_(std::move(context)), worker_(std::move(worker)) {}

  Result<std::unique_ptr<Runner>> open(const BoundProblem& problem,
                                       DeviceRunnerOptions options) override {
    return open_worker_runner(*worker_,
                              {.catalog = context_.catalog,
                               .template_dirs = context_.template_dirs,
                               .problem = problem,
                               .profile = context_.profile},
                              options);
  }
  bool lost() const override { return worker_->lost(); }

 private:
  MeasuringContext context_;
  std::unique_ptr<Worker> worker_;
};

class ProcessMeasuring final : public Measuring {
 public:
  ProcessMeasuring(MeasuringContext context, std::unique_ptr<Device> device,
                   std::unique_ptr<DataOps> data_ops, std::unique_ptr<Auditor> auditor)
      : context_(std::move(context)),
        device_(std::move(device)),
        data_ops_(std::move(data_ops)),
        auditor_(std::move(auditor)) {}

  Result<std::unique_ptr<Runner>> open(const BoundProblem& problem,
                                       DeviceRunnerOptions options) override {
    options.audit = [this](const auto& released) { return auditor_->look(released); };
    return open_device_runner(*device_, *data_ops_, problem, context_.catalog, context_.pool,
                              options);
  }
  bool lost() const override { return device_->lost(); }

 private:
  MeasuringContext context_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DataOps> data_ops_;
  std::unique_ptr<Auditor> auditor_;  ///< last: it looks at the device
};

}  // namespace

Result<std::unique_ptr<Measuring>> measure_in_worker(MeasuringContext context,
                                                     const std::filesystem::path& worker) {
  Result<std::filesystem::path> program = find_tool(worker);
  if (!program) {
    return Error{program.error().code,
                 concat("no worker to measure with: ", program.error().message)};
  }
  KW_ASSIGN(auto started, Worker::start({.program = *std::move(program),
                                         .device = context.identity.ordinal,
                                         .uuid = context.identity.uuid,
                                         .cache_root = context.cache_root,
                                         .log = context.log,
                                         .inform = context.inform,
                                         .stopped = context.stopped},
                                        context.pool));
  return std::unique_ptr<Measuring>(
      std::make_unique<WorkerMeasuring>(std::move(context), std::move(started)));
}

Result<std::unique_ptr<Measuring>> measure_in_process(MeasuringContext context,
                                                      const OpenDevice& open_device,
                                                      const MakeDataOps& make_data_ops) {
  // Its first look is at the GPU without a context of ours.
  auto auditor = std::make_unique<Auditor>(
      context.identity.uuid, AuditorOptions{.own_pids = {}, .cache_root = context.cache_root});
  KW_ASSIGN(auto device, open_device(context.identity.ordinal));
  KW_ASSIGN(auto data_ops, make_data_ops(*device, context.pool));
  auditor->watch(*device, context.pool);
  return std::unique_ptr<Measuring>(std::make_unique<ProcessMeasuring>(
      std::move(context), std::move(device), std::move(data_ops), std::move(auditor)));
}

Result<void> serve_as_worker(Channel channel) {
  const std::unique_ptr<RunnerFactory> factory = make_device_runner_factory();
  return serve_runner(std::move(channel), *factory);
}

Audit audit_now(const DeviceIdentity* gpu, const std::filesystem::path& cache_root,
                CompilePool& pool) {
  Auditor auditor(gpu ? gpu->uuid : "", AuditorOptions{.own_pids = {}, .cache_root = cache_root});
  Result<std::unique_ptr<Device>> device = Error{ErrorCode::unavailable, "no GPU"};
  if (gpu) device = open_cuda_device(gpu->ordinal);
  if (device) auditor.watch(**device, pool);
  return auditor.look();
}

}  // namespace kernwright
