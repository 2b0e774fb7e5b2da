#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/catalog/catalog.h"
#include "support/processes/channel.h"
#include "support/processes/process_exit.h"
#include "tuner/audit/audit.h"
#include "tuner/data/data_ops.h"
#include "tuner/measure/device_runner.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// Opens the runner of one problem after another, and so decides in which process a service's
/// candidates run. A runner is gone before the next one is asked for. Used by one thread at a time.
class Measuring {
 public:
  virtual ~Measuring() = default;
  virtual Result<std::unique_ptr<Runner>> open(const BoundProblem& problem,
                                               DeviceRunnerOptions options) = 0;
  /// True once the device cannot be used any more.
  virtual bool lost() const = 0;
};

/// The inputs of both ways of measuring. The references outlive the `Measuring`.
struct MeasuringContext {
  const Catalog& catalog;
  std::vector<std::filesystem::path> template_dirs;
  const DeviceProfile& profile;
  const DeviceIdentity& identity;
  CompilePool& pool;
  std::filesystem::path cache_root;
  std::function<void(std::string_view)> log;     ///< failures and restarts of the worker
  std::function<void(std::string_view)> inform;  ///< says that it runs
  std::function<bool()> stopped = exiting;       ///< true if what runs is to end soon
};

/// Measures in a process of its own, which is replaced when a candidate poisons it. Errors: the
/// program `worker` (see `find_tool`) cannot be found or started.
Result<std::unique_ptr<Measuring>> measure_in_worker(MeasuringContext context,
                                                     const std::filesystem::path& worker);

using OpenDevice = std::function<Result<std::unique_ptr<Device>>(int ordinal)>;
using MakeDataOps = std::function<Result<std::unique_ptr<DataOps>>(Device&, CompilePool&)>;

/// Measures in this process. A candidate that poisons the context ends the use of the GPU.
Result<std::unique_ptr<Measuring>> measure_in_process(MeasuringContext context,
                                                      const OpenDevice& open_device,
                                                      const MakeDataOps& make_data_ops);

/// Answers the requests of the process that started this one as its worker, until that closes the
/// channel. Errors: the channel's.
Result<void> serve_as_worker(Channel channel);

/// Returns the audit that a tuning would make now: of the GPU and the host, or of the host alone if
/// `gpu` is null.
Audit audit_now(const DeviceIdentity* gpu, const std::filesystem::path& cache_root,
                CompilePool& pool);

}  // namespace kernwright
