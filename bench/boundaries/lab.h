#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/boundaries/kernels.h"
#include "bench/common/contest.h"
#include "compile/compile_pool.h"
#include "device/program/launch_graph.h"
#include "device/program/prepared_program.h"
#include "device/timing/timed_graph.h"
#include <kernwright/result.h>

namespace kernwright::boundaries {

/// One way to do the work of an experiment, with its times.
struct Arm {
  std::string name;
  /// The launches of each unit of work, in turn. Without a graph they are single launches.
  std::vector<std::vector<SequenceStep>> units = {};
  bool in_graph = true;
  int steps = 1;     ///< of a unit, that its time is divided by
  double bytes = 0;  ///< of weights, that a unit reads
  /// Checks what the last unit of a sample left. Null where there is nothing to check.
  std::function<Result<void>()> check = nullptr;
  std::string skipped = {};                                        ///< why it cannot run here
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  ///< further fields of its row

  std::unique_ptr<DeviceBuffer> memory = nullptr;
  std::unique_ptr<TimedGraph> graph = nullptr;
  std::vector<double> us = {};  ///< of a unit
  std::string error = {};       ///< that ended it

  bool has_times() const { return skipped.empty() && error.empty() && !us.empty(); }
  double us_per_step() const;
};

/// The row of an arm: "problem" is `problem` with the arm's name, and "us" the median of a unit,
/// between the quartiles "low_us" and "high_us".
nlohmann::ordered_json row_of(const std::string& problem, const Arm& arm);

/// The GPU with the compiled kernels and the weights.
class Lab {
 public:
  /// `delay_seed` other than 0 makes blocks sleep before they pass on. `most_weights` bytes of
  /// weights are there if so much memory is free, else `region_bytes`. Errors: `unavailable`
  /// without a GPU or a toolkit.
  static Result<std::unique_ptr<Lab>> open(CompilePool& pool, std::uint32_t delay_seed);

  const DeviceProfile& profile() const { return gpu_.device->profile(); }
  const DeviceIdentity& identity() const { return gpu_.device->identity(); }
  Device& device() { return *gpu_.device; }
  /// Blocks of every kernel: one on each multiprocessor.
  std::uint32_t blocks() const { return static_cast<std::uint32_t>(profile().sm_count); }
  bool is_hopper() const { return profile().sm_arch >= 90; }
  std::uint32_t delay_seed() const { return delay_seed_; }

  DevicePointer weights() const { return weights_->address(); }
  /// Slots that steps read in turn, and all slots that there are.
  std::uint64_t region_slots() const;
  std::uint64_t weights_slots() const;

  /// The program of this launch, loaded once. Errors: those of loading; `not_found`.
  Result<const PreparedProgram*> program(const KernelShape& shape);

  /// Zeroed memory.
  Result<std::unique_ptr<DeviceBuffer>> zeros(std::int64_t bytes);
  template <typename T>
  Result<std::vector<T>> read(DevicePointer from, std::size_t count) {
    std::vector<T> result(count);
    const auto done = gpu_.device->download(std::as_writable_bytes(std::span(result)), from);
    if (!done) return done.error();
    return result;
  }

  /// Samples all arms in turn, `rounds` times, and checks each sample. An arm that fails keeps its
  /// error, and the others go on.
  void sample(std::span<Arm> arms, int rounds);

 private:
  Lab(BenchDevice gpu, std::uint32_t delay_seed) : gpu_(std::move(gpu)), delay_seed_(delay_seed) {}

  Result<void> compile(CompilePool& pool);
  Result<void> make_weights();
  Result<double> sample_once(Arm& arm);
  Result<double> sample_stream(const Arm& arm);

  BenchDevice gpu_;
  std::uint32_t delay_seed_;
  std::map<std::string, std::shared_ptr<const CompiledKernel>> kernels_;  ///< by entry
  std::map<std::string, std::unique_ptr<PreparedProgram>> programs_;
  std::unique_ptr<DeviceBuffer> weights_;
};

}  // namespace kernwright::boundaries
