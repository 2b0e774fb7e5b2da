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

/// Makes the runners of a worker: on a GPU, or fakes in tests.
class RunnerFactory {
 public:
  virtual ~RunnerFactory() = default;

  /// Called once, first. `compiler` asks the tuning process. Any thread may use it while `start`,
  /// `open` or a call of the runner is running.
  virtual Result<void> start(const detail::HelloRequest& hello,
                             std::shared_ptr<Compiler> compiler) = 0;

  /// The profile of the device for which candidates are made.
  virtual const DeviceProfile& profile() const = 0;

  /// The runner of a problem. The previous one is destroyed before. `catalog` outlives it.
  virtual Result<std::unique_ptr<Runner>> open(const Catalog& catalog, const BoundProblem& problem,
                                               DeviceRunnerOptions options) = 0;
};

/// A factory for a GPU of this process, which is opened in `start`.
std::unique_ptr<RunnerFactory> make_device_runner_factory();

/// The worker's loop: answers requests one after another, until the channel is closed or the device
/// is lost. Exceptions of a runner become errors. Errors: the channel's.
Result<void> serve_runner(Channel channel, RunnerFactory& factory);

}  // namespace kernwright
