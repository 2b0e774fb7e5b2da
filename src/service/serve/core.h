#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "compile/compiler.h"
#include "compile/process_compiler.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/launcher.h"
#include "device/device.h"
#include "launch/loaded_kernel.h"
#include "model/operation/ranged_problem.h"
#include "service/answer/answer_finder.h"
#include "service/answer/builder.h"
#include "service/answer/shortlists.h"
#include "service/answer/site.h"
#include "service/serve/family_table.h"
#include "service/serve/kernel_table.h"
#include "service/serve/lookup_counters.h"
#include "service/serve/metrics.h"
#include "service/serve/served_kernel.h"
#include "service/serve/shape_recorder.h"
#include "service/serve/sized_kernel.h"
#include "service/tune/awaited_tunings.h"
#include "service/tune/background_queue.h"
#include "service/tune/tuning_desk.h"
#include "support/mutex.h"
#include "support/processes/threads.h"
#include "tuner/data/data_ops.h"
#include "tuner/session/family_session.h"
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
  /// False for a process that makes a record of each problem, and serves none.
  bool shortlists = true;
  std::function<std::unique_ptr<Compiler>(const std::filesystem::path& tool,
                                          std::function<void(std::string_view)> log)>
      make_compiler = make_toolkit_compiler_in_processes;
  std::function<Result<CudaDeviceInfo>(int ordinal)> describe_device = describe_cuda_device;
  OpenDevice open_device = [](int ordinal) { return open_cuda_device(ordinal); };
  MakeDataOps make_data_ops = make_device_data_ops;
  std::function<Result<std::unique_ptr<Launcher>>(std::string_view cubin, const ExecutionPlan&,
                                                  int ordinal)>
      load_launcher = Launcher::load;
  std::function<Result<bool>(void* stream)> in_capture = Launcher::in_capture;
};

/// The implementation behind `Service`. It decides which of its parts answers a lookup: the table
/// of loaded kernels, the finder of records, or the desk that makes new ones. Thread-safe.
class ServiceCore : public std::enable_shared_from_this<ServiceCore> {
 public:
  static Result<std::shared_ptr<ServiceCore>> open(ServiceOptions options,
                                                   Surroundings surroundings = {});

  /// `stream` is the stream of the launch, if it is known.
  Result<BorrowedKernel> borrow_best_kernel(const Problem& problem, std::optional<void*> stream);
  Result<Kernel> get_best_kernel(const Problem& problem,
                                 std::optional<void*> stream = std::nullopt);

  /// Returns the kernel for a problem as it was written if it or its family is in memory, and
  /// nothing watches lookups.
  std::optional<BorrowedKernel> find_in_memory(const Problem& written);

  /// Returns at most `count` kernels: the best, and then those that may take its place in a chain,
  /// the best first.
  Result<std::vector<Kernel>> get_best_kernels(const Problem& problem, std::size_t count);

  struct Tuned : TuningResult {
    Kernel kernel;  ///< the winner
  };
  /// `TuningDesk::tune`. The winner replaces what get_best_kernel returned so far.
  Result<Tuned> tune(const Problem& problem, TuningOptions options,
                     const std::atomic<bool>* stop = nullptr);
  /// `TuningDesk::tune_family`. Sizes that were not asked for yet are answered by the new record.
  Result<TunedFamily> tune_family(const Problem& problem, FamilyOptions options,
                                  const std::atomic<bool>* stop = nullptr);
  /// Begins to make and load the families that answer for the sizes of a problem with ranges, and
  /// returns a problem of each. Errors: why no size can be served.
  Result<std::vector<BoundProblem>> ask_family(const Problem& problem);
  /// Makes and loads the families that answer for the sizes of a problem with ranges, so that none
  /// of them compiles or loads anything later, and reserves the memory of their workspaces. Errors:
  /// why a size cannot be served.
  Result<void> prewarm_family(const Problem& problem);
  /// Ends the tunings that callers wait for: calls of `tune` without a flag, and misses that are
  /// tuned.
  void stop_tuning() { awaited_.stop(); }
  /// The tunings that `stop_tuning` ends; a caller that waits for several problems is one of them
  /// too.
  AwaitedTunings& awaited() { return awaited_; }
  /// `TuningDesk::predict`.
  Result<TuningResult> predict(const Problem& problem, const TuningBudget& budget);

  /// Returns how well the cache alone can serve a problem, by a record whose rules hold, whose bits
  /// are there, and whose match is no worse than `min_match`.
  Coverage coverage(const Problem& problem) const;
  /// Returns the same for a range: the worst of its kernels counts.
  Coverage coverage(const RangedProblem& family) const;
  /// Launches once, on zeros, the kernel that get_best_kernel would serve. Errors: `unavailable`
  /// without a GPU; `not_found` if nothing is served; `device` with the driver's words.
  Result<void> canary(const Problem& problem);
  /// Loads a kernel of a family that was found. If that fails, looks the problem up.
  std::shared_ptr<const LoadedKernel> load_sized(const SizedKernel& sized);
  /// `Builder::recompile` of a record's winner.
  Result<Builder::Recompiled> recompile(const RecordHead& head);

  Metrics metrics() const;
  /// See `Service::record_shapes`.
  Result<void> record_shapes(const std::filesystem::path& file);
  /// See `Service::autotune`.
  void autotune(double seconds);
  /// See `Service::seal`.
  void seal(SealMode mode);

  Result<BoundProblem> bind(const Problem& problem) const { return site_.bind(problem); }
  const Site& site() const { return site_; }
  const Catalog& catalog() const { return *site_.catalog; }
  const DeviceProfile& profile() const { return site_.profile; }
  const DeviceIdentity& identity() const { return site_.identity; }
  const TieredCache& cache() const { return site_.cache; }
  /// The worst match that is served.
  Match min_match() const { return options_.min_match; }
  /// Returns the budget of a tuning of the problem that has none of its own.
  double tune_seconds(const Problem& written) const {
    return has_range(written) ? FamilyOptions().seconds : options_.tune_seconds;
  }
  /// True if this service works on a GPU, false for a `sku` without one.
  bool has_device() const { return site_.has_device; }

  Builder& builder() { return builder_; }
  const AnswerFinder& answers() const { return answers_; }
  TuningDesk& desk() { return desk_; }
  const LookupCounters& counters() const { return counters_; }
  /// Waits until the shortlists that were asked for are made.
  void wait_for_shortlists() {
    if (shortlisting_) shortlisting_->wait();
  }
  /// Waits until nothing is left to tune in the background.
  void wait_for_background() {
    if (background_) background_->wait();
  }

 private:
  /// The worst match that is served if misses are tuned: a kernel that was not measured for the
  /// problem counts as a miss.
  static constexpr Match kWorstUntuned = Match::stale_code;

  ServiceCore(ServiceOptions options, Surroundings surroundings, Site site);
  friend DeleteInThisProcess;
  /// Stops what is under way, and waits for it.
  ~ServiceCore();

  using Loaded = Result<std::shared_ptr<const LoadedKernel>>;

  /// Returns the kernel from memory, or loads it. Errors: from `resolve`; `refused` if it is not in
  /// memory and the stream is in a capture.
  Result<const LoadedKernel*> find_or_make(const Problem& written, const BoundProblem& problem,
                                           std::optional<void*> stream);
  /// Reserves the largest workspace of the family of a problem, for sizes of these ranges.
  Result<void> reserve_workspace(const BoundProblem& of_family, const std::vector<FreeDim>& ranges);
  /// Returns the kernel of the problem's family for its sizes, without a look at the cache, or
  /// nullopt if there is none, or if this service looks each size up.
  std::optional<BorrowedKernel> find_in_family(const Problem& written);
  /// Returns the budget of tuning a miss, or nullopt if misses are not tuned.
  std::optional<double> tuning_seconds() const;
  /// Returns the worst match that is served from memory.
  Match worst_in_memory() const { return tuning_seconds() ? kWorstUntuned : Match::none; }
  /// Tells the recorder, if there is one.
  void record(const KernelSummary& answer);
  /// Takes the kernel from the cache, or makes it as the miss policy says, and counts the lookup.
  Loaded resolve(const BoundProblem& problem);
  /// Returns the kernel of the best record that can be served, or null if none can.
  std::shared_ptr<const LoadedKernel> serve_from_cache(const BoundProblem& problem,
                                                       Coverage& coverage);
  /// Returns a kernel of the shortlist of the problem's family, or null if there is none, or if
  /// this service does not predict.
  std::shared_ptr<const LoadedKernel> serve_from_shortlist(const BoundProblem& problem,
                                                           const Coverage& missing);
  Loaded make(const BoundProblem& problem, Coverage missing);
  /// Loads a kernel that was not loaded yet, and counts it.
  Loaded load(const BoundProblem& problem, GradedRecord record, Offer offer) const;
  /// Makes the kernel that `launcher` launches, which is null without a GPU.
  Loaded served(const BoundProblem& problem, GradedRecord record, Offer offer,
                std::unique_ptr<Launcher> launcher) const;
  /// Returns the error of launches without a GPU; an empty one with a GPU.
  Error why_not_launched() const;
  /// Loads the offer's code. Returns null without a GPU.
  std::shared_ptr<const Launcher> load_ahead(const Offer& offer) const;
  /// Loads the winner of a record that was made just now.
  Loaded load(const BoundProblem& problem, const TuningResult& made, Match match,
              MissReason reason) const;
  /// Returns the alternatives to the winner of `record`, best first. If it is only predicted and
  /// fewer than `count` are known, predicts more.
  std::vector<GradedRecord> next_best(const BoundProblem& problem, const GradedRecord& record,
                                      std::size_t count);
  /// Tries the next record: its kernel is loaded, unless it launches as one that is there.
  void load_one(const BoundProblem& problem, const ServedKernel& best,
                ServedKernel::Alternatives& others) const KW_REQUIRES(others.mutex);
  void count(const BoundProblem& problem, Match match, MissReason reason);
  void tune_in_background(const Problem& normalized);
  void make_shortlist_in_background(const BoundProblem& problem);

  bool predicts() const {
    return options_.min_match == Match::none && options_.on_miss != MissPolicy::fail &&
           !tuning_seconds();
  }
  bool may_compile() const {
    return options_.min_match == Match::none && !builder_.seal().refuses();
  }
  AnswerFinder::Bits bits() const {
    return may_compile() ? AnswerFinder::Bits::built : AnswerFinder::Bits::stored;
  }

  const ServiceOptions options_;
  const Surroundings surroundings_;
  const Site site_;
  Builder builder_;
  AnswerFinder answers_;
  TuningDesk desk_;
  Shortlists shortlists_;
  KernelTable table_;
  FamilyTable families_;
  LookupCounters counters_;
  Mutex watch_mutex_;
  std::shared_ptr<ShapeRecorder> recorder_ KW_GUARDED_BY(watch_mutex_);
  std::atomic<double> autotune_seconds_{0};
  /// True if there is a recorder or autotuning, so that finding a kernel in memory is not all.
  std::atomic<bool> watched_{false};
  mutable std::atomic<std::uint64_t> loaded_kernels_{0};
  mutable std::atomic<std::uint64_t> loaded_bytes_{0};
  AwaitedTunings awaited_;
  // Last: their threads use all others.
  std::unique_ptr<BackgroundQueue> background_;    ///< tunes; null if nothing is tuned so
  std::unique_ptr<BackgroundQueue> shortlisting_;  ///< null if each size is looked up
};

}  // namespace kernwright
