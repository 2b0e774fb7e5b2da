#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/candidate/device_profile.h"
#include <kernwright/result.h>

namespace kernwright {

/// What launching costs with no work in it, in microseconds. Tools that hook launches make it
/// dearer; company on the GPU, which takes turns with us, interrupts some graphs. 0: not known.
struct LaunchCost {
  double graph_node_us = 0;      ///< one empty kernel within a graph of 256
  double stream_launch_us = 0;   ///< one launch of an empty kernel into a stream
  double event_pair_us = 0;      ///< two events around an empty graph
  double interrupted_share = 0;  ///< of the graphs, those that took far longer than the others
  double sm_mhz = 0;             ///< SM clock meanwhile

  friend bool operator==(const LaunchCost&, const LaunchCost&) = default;
};

CompileRequest launch_probe_request(int sm_arch);

/// The cost by the device's profile.
LaunchCost launch_cost_of(const DeviceProfile& profile);

/// Measures launch costs on an open device. The device outlives the probe.
class LaunchProbe {
 public:
  using Clock = std::function<double()>;  ///< microseconds

  /// Compiles and loads an empty kernel.
  static Result<LaunchProbe> make(Device& device, CompilePool& pool, Clock clock);

  /// Replays until two blocks agree, which also wakes a GPU that has slept: tens of milliseconds.
  /// A GPU that comes from its power limit gets up to half a second to return to `usual_sm_mhz`,
  /// since a launch takes as many cycles at every clock. 0: not known.
  Result<LaunchCost> measure(double usual_sm_mhz = 0);

 private:
  LaunchProbe(Device& device, Clock clock) : device_(device), clock_(std::move(clock)) {}

  struct Block {
    double us = 0;  ///< median
    double interrupted = 0;
    double sm_mhz = 0;
  };
  struct Steady {
    double us = 0;
    double interrupted_share = 0;
    double sm_mhz = 0;
  };
  Result<Block> block(Device::TimedUnits& units);
  Result<void> recover(double usual_sm_mhz);
  Result<Steady> steady(Device::TimedUnits& units);
  Result<double> stream_launch_us();

  Device& device_;
  Clock clock_;
  std::shared_ptr<LoadedProgram> kernel_;
  std::shared_ptr<LoadedProgram> nothing_;
  std::unique_ptr<Device::TimedUnits> chain_;
  std::unique_ptr<Device::TimedUnits> empty_;
};

/// The launch costs that this host had with this GPU and driver, kept in a cache's folder.
class LaunchBaseline {
 public:
  LaunchBaseline(const std::filesystem::path& cache_root, const DeviceIdentity& device);

  /// Nothing where there is none, or none that can be read.
  std::optional<LaunchCost> load() const;
  Result<void> store(const LaunchCost& cost) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kernwright
