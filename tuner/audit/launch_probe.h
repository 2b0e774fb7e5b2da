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

/// The share of the usual clock that counts as full. It leaves room for a few steps of 15 MHz.
inline constexpr double kFullClock = 0.97;

/// The times of launches without work, in microseconds; 0 if not known. Tools that hook launches
/// make them longer. Other processes on the GPU, with which we share time slices, interrupt some
/// graphs.
struct LaunchCost {
  double graph_node_us = 0;      ///< one empty kernel within a graph of 256
  double stream_launch_us = 0;   ///< one launch of an empty kernel into a stream
  double event_pair_us = 0;      ///< two events around an empty graph
  double interrupted_share = 0;  ///< share of the graphs that took far longer than the others
  double sm_mhz = 0;             ///< SM clock at that time

  friend bool operator==(const LaunchCost&, const LaunchCost&) = default;
};

CompileRequest launch_probe_request(int sm_arch);

/// Returns the launch costs that the device's profile has.
LaunchCost launch_cost_of(const DeviceProfile& profile);

/// Measures launch costs on an open device, which must outlive the probe.
class LaunchProbe {
 public:
  using Clock = std::function<double()>;  ///< microseconds

  /// Compiles and loads an empty kernel.
  static Result<LaunchProbe> make(Device& device, CompilePool& pool, Clock clock);

  /// Measures until two blocks agree, which takes tens of milliseconds and also wakes an idle GPU.
  /// A GPU that was at its power limit gets up to half a second to return to `usual_sm_mhz` (0: not
  /// known), because a launch takes a number of cycles, and so longer at a lower clock.
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

/// The usual launch costs of this host with this GPU and driver, kept in a cache's folder.
class LaunchBaseline {
 public:
  LaunchBaseline(const std::filesystem::path& cache_root, const DeviceIdentity& device);

  /// Returns nullopt if there is no baseline, or it cannot be read.
  std::optional<LaunchCost> load() const;
  Result<void> store(const LaunchCost& cost) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kernwright
