#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/data_ops.h"
#include "tuner/data/probe_kernels.h"
#include <kernwright/l2_state.h>
#include <kernwright/result.h>

namespace kernwright {

/// Work that is timed: one unit for each buffer set, and the graph of them once it is built.
struct TimedWork {
  std::vector<WorkUnit> sets;
  std::unique_ptr<Device::TimedUnits> units;
  int length = 0;  ///< units in the graph
};

/// Times work on a device. It builds the graph of a sample, and brings the L2 into the policy's
/// state before each sample. Everything that its constructor is given outlives it.
class UnitSampler {
 public:
  UnitSampler(Device& device, DataOps& data_ops, const BufferSets& sets, const ProbeKernels& probes,
              L2State l2, double sample_us);

  /// One sample of work on the buffer sets; the first one builds the graph.
  Result<Sample> sample(TimedWork& work);
  /// The same of work without tensors, which leaves the L2 as it is.
  Result<Sample> sample_bare(TimedWork& work);
  /// Builds the graph of work on the buffer sets if there is none.
  Result<void> build(TimedWork& work);

  /// Gives the device something to do for `seconds` while the host does something else. If that
  /// could not be started, the next call shows it.
  void fill(double seconds);

 private:
  /// The graph of so many units, built while the device is at work.
  Result<std::unique_ptr<Device::TimedUnits>> build_graph(const TimedWork& work, int units);
  /// `once`: no set may be used twice in a sample.
  Result<void> build_units(TimedWork& work, bool once);

  Device& device_;
  DataOps& data_ops_;
  const BufferSets& sets_;
  const ProbeKernels& probes_;
  double sample_us_;
  /// The sets do not pass the L2: it is emptied before every sample, which uses each set once.
  bool flushes_;
};

}  // namespace kernwright
