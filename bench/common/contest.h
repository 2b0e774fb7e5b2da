#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/common/captured_graph.h"
#include "device/device.h"
#include "device/driver/cuda_context.h"
#include "service/serve/core.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/data_ops.h"
#include <kernwright/result.h>

namespace kernwright {

/// One implementation of a problem.
struct Competitor {
  std::string name;
  /// Enqueues one launch on `stream`, on the tensors of buffer set `set`.
  std::function<Result<void>(CUstream stream, int set)> launch;

  std::optional<CapturedGraph> graph;
  std::vector<double> samples_us;

  double median_us() const { return Measurement{samples_us}.median_us(); }
  double mad_us() const { return Measurement{samples_us}.mad_us(); }
};

/// The GPU of a bench. It has the same primary context as the service, and a stream of its own. The
/// context must be current wherever this is used.
struct BenchDevice {
  std::shared_ptr<CudaContext> context;
  std::unique_ptr<StreamGate> gate;
  std::unique_ptr<Device> device;
  std::unique_ptr<DataOps> data_ops;

  static Result<BenchDevice> open(CompilePool& pool);
};

/// Compares implementations of one problem in one process. They have the same normally distributed
/// inputs, rotated over buffer sets so that the L2 is cold, and the same reference. Samples are
/// taken in turn.
class Contest {
 public:
  static Result<Contest> make(ServiceCore& core, BenchDevice& bench, const BoundProblem& problem);

  DevicePointer address(int set, std::size_t tensor) const { return sets_.address(set, tensor); }
  const BufferSets& sets() const { return sets_; }

  /// Runs the competitor once on poisoned outputs and compares them with the reference. The
  /// report's max_error is in units of the bound. Errors: `internal` with the first wrong element.
  Result<CheckReport> check(const Competitor& competitor) const;

  /// Captures as many launches as take about 3 ms at `expected_us` each, and replays them once.
  Result<void> prepare(Competitor& competitor, double expected_us) const;

  /// Takes `rounds` new samples of each in turn, and starts each round with another one. Drops the
  /// old samples.
  Result<void> sample(std::span<Competitor* const> competitors, int rounds) const;

 private:
  Contest(BenchDevice& bench, BufferSets sets, Checker checker)
      : bench_(bench), sets_(std::move(sets)), checker_(std::move(checker)) {}

  BenchDevice& bench_;
  BufferSets sets_;
  Checker checker_;
};

}  // namespace kernwright
