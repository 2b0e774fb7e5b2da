#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "device/driver/cuda_context.h"
#include "device/program/launch_graph.h"
#include "device/program/prepared_program.h"
#include "device/timing/clock_stamps.h"
#include "support/mutex.h"
#include "support/processes/threads.h"
#include <kernwright/result.h>

namespace kernwright {

/// Holds a stream back until the host has enqueued a whole sample, so that the GPU never waits for
/// the host between the two events. The stream waits for a word of pinned memory. If the GPU has no
/// stream memory operations, the gate stays open. Under tools that make launches synchronous
/// (compute-sanitizer, profilers) the host would wait behind its own gate for ever. So a watcher
/// opens a gate that stays shut, and it is not used again.
class StreamGate {
 public:
  static Result<std::unique_ptr<StreamGate>> make(const std::shared_ptr<CudaContext>& context);
  ~StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  Result<void> close();
  void open();
  /// Returns false after the watcher had to open it.
  bool usable() const { return !forced_; }

 private:
  StreamGate(ContextOwned<HostMemoryHandle> word, CUdeviceptr address)
      : word_(std::move(word)), address_(address) {}

  void release(std::uint32_t ticket);
  void watch();

  ContextOwned<HostMemoryHandle> word_;
  CUdeviceptr address_;
  std::uint32_t ticket_ = 0;
  std::atomic<std::uint32_t> shut_{0};  ///< the ticket while shut, else 0
  std::atomic<bool> forced_{false};
  Mutex mutex_;
  std::condition_variable_any stopped_;
  bool stop_ KW_GUARDED_BY(mutex_) = false;
  Thread watcher_;  ///< last: it ends before what it looks at
};

/// Units of work as one executable graph, whose nodes form a chain, with the events that time it.
/// The context must be current for `make` and `sample`.
class TimedGraph final : public Device::TimedUnits {
 public:
  static Result<std::unique_ptr<TimedGraph>> make(const std::shared_ptr<CudaContext>& context,
                                                  std::span<const std::vector<SequenceStep>> sets,
                                                  int units);

  /// Replays the graph `replays` times. The time per unit includes the launch gaps inside the
  /// graph. `stamps` may be null. `check` counts the sample if both clocks were read.
  Result<Sample> sample(StreamGate* gate, ClockStamps* stamps, TimerCheck& check);

 private:
  TimedGraph(ContextOwned<GraphExecHandle> exec, ContextOwned<EventHandle> begin,
             ContextOwned<EventHandle> end, int units, int nodes)
      : exec_(std::move(exec)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        units_(units),
        nodes_(nodes) {}

  Result<void> enqueue(StreamGate* gate, ClockStamps* stamps);

  ContextOwned<GraphExecHandle> exec_;
  ContextOwned<EventHandle> begin_;
  ContextOwned<EventHandle> end_;
  int units_;
  int nodes_;
  /// The programs, which outlive the graph, with their workspaces.
  std::vector<std::pair<const PreparedProgram*, DevicePointer>> used_;
};

}  // namespace kernwright
