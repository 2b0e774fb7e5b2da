#pragma once

#include <functional>
#include <memory>

#include "device/driver/cuda_context.h"
#include "device/timing/timed_graph.h"
#include <kernwright/result.h>

namespace kernwright {

/// The work of any library, captured from a context's stream into a graph, which is replayed
/// between two events. The context must be current for `make` and `sample_us`.
class CapturedGraph {
 public:
  /// Enqueues unit `unit` of the work on the stream.
  using Enqueue = std::function<Result<void>(CUstream stream, int unit)>;

  /// The work of `enqueue` must have run once before, because a first launch may load code, which
  /// cannot be captured.
  static Result<CapturedGraph> make(const std::shared_ptr<CudaContext>& context, int units,
                                    const Enqueue& enqueue);

  /// Replays the graph once and returns microseconds per unit. The stream starts when all is
  /// enqueued.
  Result<double> sample_us(StreamGate& gate);

 private:
  CapturedGraph(ContextOwned<GraphExecHandle> exec, ContextOwned<EventHandle> begin,
                ContextOwned<EventHandle> end, int units)
      : exec_(std::move(exec)), begin_(std::move(begin)), end_(std::move(end)), units_(units) {}

  Result<void> enqueue();

  ContextOwned<GraphExecHandle> exec_;
  ContextOwned<EventHandle> begin_;
  ContextOwned<EventHandle> end_;
  int units_;
};

}  // namespace kernwright
