#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "cache/stores/single_flight_compiler.h"
#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/launcher.h"
#include "device/device.h"
#include "launch/loaded_kernel.h"
#include "model/catalog/catalog.h"
#include "service/serve/hot_map.h"
#include "service/serve/lookup_counters.h"
#include "service/tune/background_tuner.h"
#include "service/tune/measuring.h"
#include "tuner/data/data_ops.h"
#include "tuner/measure/unfused_comparison.h"
#include "tuner/search/search.h"
#include <kernwright/kernel.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/service.h>

namespace kernwright {

/// The world outside of a service, which tests replace.
struct Surroundings {
  /// How long a lookup waits for another process that makes the same artifact or record, before it
  /// does the work itself.
  std::chrono::milliseconds patience{2'000};
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

/// What stands behind `Service`, with the details that the command line and tests want.
/// Thread-safe.
class ServiceCore {
 public:
  static Result<std::shared_ptr<ServiceCore>> open(ServiceOptions options,
                                                   Surroundings surroundings = {});
  ~ServiceCore();

  Result<Kernel> get_best_kernel(const Problem& problem);

  /// Tunes the problem and stores the record. The winner replaces what get_best_kernel returned so
  /// far. Failures are kept even where the session ends in an error.
  ///
  /// `trial_log` and `progress` of the options may be empty; the log then goes beside the cache's
  /// records. `failed`, and what the cache knows, are set here. Where `stop` becomes true the
  /// search ends soon, nothing of it is kept, and the error is `unavailable`.
  Result<TuningResult> tune(const Problem& problem, TuningOptions options,
                            const std::atomic<bool>* stop = nullptr);

  /// Ranks by the cost model, compiles the first `budget.trials` in at most `budget.seconds` (see
  /// `predict_record`) and stores a predicted record.
  Result<TuningResult> predict(const Problem& problem, const TuningBudget& budget);

  /// Compares a fused kernel with its problem's unfused form. It runs in this process and holds the
  /// lock of the GPU. Errors: those of `kernwright::compare_unfused`; `unavailable` where the GPU
  /// is not to be had.
  Result<UnfusedComparison> compare_unfused(const UnfusedMatch& match, std::uint64_t seed);

  /// The candidate's bits: from the artifact store, or compiled and stored.
  Result<Artifact> compile(const Candidate& candidate);
  /// A candidate from a template's name and some of its parameters; the others take their defaults.
  Result<Candidate> candidate(const Problem& problem, std::string_view kernel_template,
                              const ParameterValues& parameters) const;

  /// Every record that could answer for the problem, best first, and why there is none.
  std::vector<GradedRecord> records(const Problem& normalized, MissReason& reason) const;

  /// How well the cache alone can serve a problem: the `Match` of the first record that could be
  /// served whole. Such a record's rules hold, its bits are there, and it is no worse than
  /// `min_match`.
  struct Coverage {
    Match match = Match::none;
    MissReason reason = MissReason::absent;
  };
  Coverage coverage(const Problem& normalized) const;

  /// Launches once, on zeros, the kernel that get_best_kernel would serve. Errors: `unavailable`
  /// without a GPU; `not_found` where nothing is served; `device` with the driver's words.
  Result<void> canary(const Problem& problem);

  /// Compiles a record's winner again, whatever is stored, and compares the bits. `other_code` says
  /// that today its operation, its template's text or the compiler is another. Errors:
  /// `unavailable` without a toolkit; those of the compiler.
  enum class Recompiled { same, differs, other_code };
  Result<Recompiled> recompile(const RecordHead& head);

  /// A problem with the operation it names, normalised.
  struct Named {
    const Operation* operation = nullptr;
    Problem problem;
  };
  Result<Named> name(const Problem& problem) const;
  RecordKey key(const Problem& normalized) const;
  MeasurePolicy policy() const { return {.l2 = options_.l2}; }

  /// What people decided about the problem's candidates: pins and bans.
  Decisions decisions(const Problem& normalized) const { return look_up(normalized).decisions; }

  const LookupCounters& counters() const { return counters_; }
  const Catalog& catalog() const { return *catalog_; }
  const DeviceProfile& profile() const { return profile_; }
  const DeviceIdentity& identity() const { return identity_; }
  const TieredCache& cache() const { return cache_; }
  /// Waits until nothing is left to tune in the background.
  void wait_for_background() {
    if (background_) background_->wait();
  }
  /// True where this service works on a GPU, false for a `sku` without one.
  bool has_device() const { return has_device_; }
  /// Made when it is first asked for: a process that only serves starts no threads.
  CompilePool& pool();
  /// How many artifacts this process compiled itself.
  int compiled() const { return compiler_->compiled(); }
  double tune_seconds() const { return options_.tune_seconds; }

 private:
  ServiceCore(ServiceOptions options, Surroundings surroundings,
              std::shared_ptr<const Catalog> catalog);

  struct Flight;

  Result<const LoadedKernel*> resolve(const Named& named);
  /// The kernel of the best record that can be served, or null where none can. `best` describes
  /// that record, or says why there is none.
  const LoadedKernel* serve_from_cache(const Named& named, Coverage& best);
  /// Does what the miss policy says, where the cache has nothing that can be served.
  Result<const LoadedKernel*> fall_back(const Named& named, Coverage best);
  Result<const LoadedKernel*> serve(const Named& named, const RecordHead& head, Match match,
                                    MissReason reason);
  /// The winner for this problem with its bits. These are compiled where that is needed and
  /// allowed.
  struct Fetched {
    Candidate candidate;
    Artifact artifact;
  };
  Result<Fetched> fetch(const Named& named, const RecordHead& head, MissReason reason);
  /// The winner as a candidate for this problem; `refused` says why it is none.
  Result<Candidate> candidate_of(const Named& named, const HeadWinner& winner,
                                 MissReason& refused) const;
  /// Whether the record's own bits are those of the winner for this problem. They are not where the
  /// template's text has changed, or where another problem's dims were compiled in.
  bool has_own_bits(const Named& named, const RecordHead& head, MissReason reason) const;
  /// `records`, and between measured and predicted ones those of neighbouring shapes.
  std::vector<GradedRecord> answers(const Named& named, MissReason& reason) const;
  Answers look_up(const Problem& normalized) const;
  TieredCache::Now now() const;
  bool may_compile() const { return options_.min_match == Match::none; }
  void tune_in_background();
  void ask_background(const Problem& normalized);
  void count(const Problem& normalized, Match match, MissReason reason);
  /// Loads the toolkit and remembers its identity for the environment of records.
  Result<std::string> load_compiler();
  const LoadedKernel* keep(std::shared_ptr<LoadedKernel> kernel);
  /// Puts the record into the cache, or says in the result and the log why it is not there.
  void store(TuningResult& result) const;
  std::string template_digest(std::string_view kernel_template) const;
  RecordEnvironment environment() const;
  Result<Measuring*> measuring();
  void log(LogLevel level, std::string_view message) const;

  ServiceOptions options_;
  Surroundings surroundings_;
  std::shared_ptr<const Catalog> catalog_;
  DeviceProfile profile_;
  DeviceIdentity identity_;
  bool has_device_ = false;
  TieredCache cache_;
  std::shared_ptr<SingleFlightCompiler> compiler_;
  std::once_flag pool_once_;
  std::unique_ptr<CompilePool> pool_;

  // Of the templates that were asked for.
  mutable std::mutex template_digests_mutex_;
  mutable std::map<std::string, std::string, std::less<>> template_digests_;

  HotMap hot_;
  LookupCounters counters_;
  std::mutex flights_mutex_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;

  std::mutex kept_mutex_;
  std::vector<std::shared_ptr<const LoadedKernel>> kept_;

  // One measurement at a time; opened on the first tuning.
  std::mutex measuring_mutex_;
  std::unique_ptr<Measuring> measuring_;

  mutable std::mutex compiler_mutex_;
  std::string compiler_identity_;  // empty until a compile needed it

  std::unique_ptr<BackgroundTuner> background_;  // last: its thread uses all others
};

}  // namespace kernwright
