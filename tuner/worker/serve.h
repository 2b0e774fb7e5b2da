#pragma once

#include <memory>

#include "compile/compiler.h"
#include "model/catalog/catalog.h"
#include "support/processes/channel.h"
#include "tuner/measure/device_runner.h"
#include "tuner/runner.h"
#include "tuner/worker/protocol.h"
#include <kernwright/result.h>

namespace kernwright {

/// Where a worker gets its runners from: a GPU, or a fake in tests.
class RunnerFactory {
 public:
  virtual ~RunnerFactory() = default;

  /// Called once, before all else. `compiler` asks the tuning process; it may be used while
  /// `start`, `open` or a call of the runner is running, on any thread.
  virtual Result<void> start(const detail::HelloRequest& hello,
                             std::shared_ptr<Compiler> compiler) = 0;

  /// The device that candidates are made for.
  virtual const DeviceProfile& profile() const = 0;

  /// The runner of a problem; the one before is gone by then. `catalog` outlives it.
  virtual Result<std::unique_ptr<Runner>> open(const Catalog& catalog, const Operation& operation,
                                               const Problem& normalized,
                                               DeviceRunnerOptions options) = 0;
};

/// A GPU of this process. It is opened in `start`.
std::unique_ptr<RunnerFactory> make_device_runner_factory();

/// The worker's loop: answers requests, one after another, until the channel is closed or the
/// device is lost. What a runner throws becomes an error. Errors: the channel's own.
Result<void> serve_runner(Channel channel, RunnerFactory& factory);

}  // namespace kernwright
