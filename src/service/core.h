#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/tiered_cache.h"
#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "device/cuda_device.h"
#include "device/device.h"
#include "device/launcher.h"
#include "model/catalog.h"
#include "service/loaded_kernel.h"
#include "service/measuring.h"
#include "tuner/data_ops.h"
#include "tuner/tuning_session.h"
#include <kernwright/kernel.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/service.h>

namespace kernwright {

/// The world outside: what tests replace.
struct Surroundings {
  std::function<std::unique_ptr<Compiler>()> make_compiler = make_toolkit_compiler;
  std::function<Result<CudaDeviceInfo>(int ordinal)> describe_device = describe_cuda_device;
  OpenDevice open_device = [](int ordinal) { return open_cuda_device(ordinal); };
  MakeDataOps make_data_ops = make_device_data_ops;
  std::function<Result<std::unique_ptr<Launcher>>(std::string_view cubin, const ExecutionPlan&,
                                                  int ordinal)>
      load_launcher = Launcher::load;
};

/// A kernel's bits and where they came from.
struct Artifact {
  std::string digest;
  std::shared_ptr<const CompiledKernel> kernel;
  bool cached = false;
};

/// What stands behind `Service`, with the detail that the command line and tests want. Thread-safe.
class ServiceCore {
 public:
  static Result<std::shared_ptr<ServiceCore>> open(ServiceOptions options,
                                                   Surroundings surroundings = {});
  ~ServiceCore();

  Result<Kernel> get_best_kernel(const Problem& problem);

  /// Tunes and stores; the winner replaces what get_best_kernel returned so far, and failures are
  /// kept even where the session ends in an error. `trial_log` and `progress` of the options may be
  /// empty: the log then goes beside the cache's records. What the cache knows, and `failed`, are
  /// set here.
  Result<TuningResult> tune(const Problem& problem, TuningOptions options);

  /// Ranks by the cost model, compiles the best `compile_count` and stores a predicted record.
  Result<TuningResult> predict(const Problem& problem, int compile_count);

  /// The candidate's bits: from the artifact store, or compiled and stored.
  Result<Artifact> compile(const Candidate& candidate);
  /// A candidate from a template's name and some of its parameters; the others take their defaults.
  Result<Candidate> candidate(const Problem& problem, std::string_view kernel_template,
                              const ParameterValues& parameters) const;

  /// Every record that could answer for the problem, best first, and why there is none.
  std::vector<GradedRecord> records(const Problem& normalized, MissReason& reason) const;

  /// What serving the problem from the cache alone would lack: `Match` of the first record that
  /// could be served whole (its rules hold, its bits are there).
  struct Coverage {
    Match match = Match::none;
    MissReason reason = MissReason::absent;
  };
  Coverage coverage(const Problem& normalized) const;

  /// A problem with the operation it names, normalised.
  struct Named {
    const Operation* operation = nullptr;
    Problem problem;
  };
  Result<Named> name(const Problem& problem) const;
  RecordKey key(const Problem& normalized) const;
  MeasurePolicy policy() const { return {.l2 = options_.l2}; }

  const Catalog& catalog() const { return *catalog_; }
  const DeviceProfile& profile() const { return profile_; }
  const DeviceIdentity& identity() const { return identity_; }
  const TieredCache& cache() const { return cache_; }
  /// True where this service works on a GPU, false for a `sku` without one.
  bool has_device() const { return has_device_; }
  CompilePool& pool() { return *pool_; }
  double tune_seconds() const { return options_.tune_seconds; }

 private:
  ServiceCore(ServiceOptions options, Surroundings surroundings,
              std::shared_ptr<const Catalog> catalog);

  struct HotMap;
  struct Flight;

  Result<const LoadedKernel*> resolve(const Problem& normalized);
  Result<const LoadedKernel*> serve(const TuningRecord& record, Match match, MissReason reason);
  Result<Candidate> candidate_of(const TuningRecord& record, MissReason& reason) const;
  /// Loads the toolkit and remembers its identity for the environment of records.
  Result<std::string> load_compiler();
  const LoadedKernel* keep(std::shared_ptr<LoadedKernel> kernel);
  std::string template_digest(std::string_view kernel_template) const;
  RecordEnvironment environment() const;
  Result<Measuring*> measuring();
  void log(LogLevel level, std::string_view message) const;

  ServiceOptions options_;
  Surroundings surroundings_;
  std::shared_ptr<const Catalog> catalog_;
  std::map<std::string, std::string, std::less<>> template_digests_;
  DeviceProfile profile_;
  DeviceIdentity identity_;
  bool has_device_ = false;
  TieredCache cache_;
  std::unique_ptr<CompilePool> pool_;

  std::unique_ptr<HotMap> hot_;
  std::mutex flights_mutex_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;

  std::mutex kept_mutex_;
  std::vector<std::shared_ptr<const LoadedKernel>> kept_;

  // One measurement at a time; opened on the first tuning.
  std::mutex measuring_mutex_;
  std::unique_ptr<Measuring> measuring_;

  mutable std::mutex compiler_mutex_;
  std::string compiler_identity_;  // empty until a compile needed it
};

}  // namespace kernwright
