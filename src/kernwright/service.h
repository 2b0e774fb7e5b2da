#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kernwright/export.h>
#include <kernwright/kernel.h>
#include <kernwright/l2_state.h>
#include <kernwright/match.h>
#include <kernwright/problem.h>
#include <kernwright/result.h>
#include <kernwright/tensor_binding.h>

namespace kernwright {

class ServiceCore;

/// The progress of a tuning's search.
struct TuneProgress {
  int candidates = 0;  ///< all that there are
  int measured = 0;
  double best_us = 0;  ///< the best so far; 0 before there is one
  double seconds = 0;  ///< since the search began
};

/// Bounds one tuning.
struct TuneOptions {
  /// The budget. Without one it is `ServiceOptions::tune_seconds`, and 90 if the problem has
  /// ranges.
  std::optional<double> seconds = {};
  int trials = 0;  ///< at most so many candidates are measured; 0: as many as the budget allows
  /// "portfolio", "ranked", "local_search", "random" or "exhaustive"
  std::string strategy = "portfolio";
  /// Hears how far the tuning is, in the thread that called it, and not after it has returned.
  std::function<void(const TuneProgress&)> progress = {};
};

/// The reaction of a service if the cache has no record for a problem.
enum class MissPolicy {
  predict,   ///< rank by the cost model, compile the best candidate and serve it at once
  tune_now,  ///< tune on the device, then serve the winner
  /// Serve at once as `predict` does, tune meanwhile, and serve the winner from then on. Problems
  /// that records answer, but not exactly (`Match`), are tuned again too. Handles that were
  /// returned before stay as they are.
  tune_in_background,
  fail  ///< return `not_found`
};

/// The reaction of a sealed service to a compile.
enum class SealMode {
  error,   ///< it is refused
  warning  ///< it is written to the log, and goes on
};

/// The form in which a record is returned.
enum class RecordForm {
  json,  ///< for tools: one object, as a report has it for each problem
  html   ///< for people: a part of a page, without scripts and requests
};

enum class LogLevel { debug, info, warning };

/// The settings of a service. Every field has a default, so a caller names only what differs:
/// `Service::open({.sku = "h200"})`.
struct ServiceOptions {
  /// The directory of the cache. Empty: $KERNWRIGHT_CACHE, else $XDG_CACHE_HOME/kernwright, else
  /// ~/.cache/kernwright.
  std::string cache = {};
  /// Further cache directories, which the service only reads.
  std::vector<std::string> read_only_caches = {};
  /// The same for bundles that packages bring: each folder is one unpacked bundle. It is read whole
  /// once, and is passed over with a warning if others than this user and root may write to it, or
  /// a file is not as its manifest says. Files that are replaced later are not served.
  std::vector<std::string> signed_caches = {};
  /// Folders with operations and templates of your own. They have the layout of `templates/`.
  std::vector<std::string> template_dirs = {};
  /// Files with functions of your own, `clamp.cu` or `clamp.ltoir`. Problems name them:
  /// `epilogue=clamp`. A kernel in the cache needs no file: in place of the name, a problem may
  /// have the digest that is in its key.
  std::vector<std::string> epilogues = {};
  /// The GPU, by the driver's number.
  int device = 0;
  /// A profile id such as "h200": the service works for that SKU and needs no GPU. Empty: it works
  /// for the GPU `device`.
  std::string sku = {};
  /// The state of the L2 that kernels are tuned for. Records of another state are not served.
  /// `mixed` is refused for an operation that marks no tensor as warm.
  L2State l2 = L2State::cold;
  MissPolicy on_miss = MissPolicy::predict;
  /// The budget in seconds of one tuning, by `on_miss` or without a budget of its own, of a problem
  /// without ranges.
  double tune_seconds = 30;
  /// The GPU time in seconds that tuning in the background may take in all.
  double background_seconds = 600;
  /// The worst match that is served. With `none` the service serves whatever the miss policy
  /// yields. With any other value a worse match is `not_found`, and the service never compiles
  /// anything. A fleet that has a complete bundle says `recheck`.
  Match min_match = Match::none;
  /// The program that tuning measures and compiles in, `kernwright`. Empty: it is looked for beside
  /// this library or the running program, or in the `bin` folder next to either. Without it
  /// compiles run on threads of this process, and tuning needs `measure_in_process`.
  std::string worker = {};
  /// True: tuning measures in this process instead. A candidate that faults then costs the process
  /// the GPU.
  bool measure_in_process = false;
  /// True: every launch is a `Kernel::launch_checked`. This is for debugging.
  bool check_launches = false;
  /// The number of compiles that run at the same time. 0: all cores but two, at least one.
  int compile_threads = 0;
  /// Receives warnings and notes, from any thread. The library itself never prints.
  std::function<void(LogLevel, std::string_view)> log = {};
};

/// The registers, spills and memory of a compiled kernel.
struct ResourceReport {
  int registers = 0;
  int spill_bytes = 0;
  int stack_bytes = 0;
  int static_smem_bytes = 0;
  std::vector<std::string> warnings = {};  ///< compiler warnings that cost speed
};

/// A kernel that was compiled without being tuned.
struct Compilation {
  std::string artifact = {};  ///< the digest of everything it was compiled from, hex
  std::string cubin = {};
  ResourceReport resources = {};
  bool cached = false;  ///< it came from the artifact store
};

/// The number of lookups that ended in one match for one reason.
struct LookupCount {
  Match match = Match::none;
  MissReason reason = MissReason::none;
  std::uint64_t count = 0;
};

/// A template's parameters by name.
using ParameterValues = std::vector<std::pair<std::string, std::int64_t>>;

/// Provides tuned kernels for one device. It looks records up in the cache, compiles, loads and
/// hands out kernels, which may outlive it. Thread-safe.
///
/// Compiling and tuning start threads, and a fork leaves these behind. In a process that was forked
/// after that, a kernel in memory is still found, but opening a service, a new lookup and tuning
/// fail with `unavailable`. CUDA does not survive a fork either. So fork before the first lookup,
/// or start a new process.
class KERNWRIGHT_API Service {
 public:
  /// Errors: `unavailable` if there is neither the GPU nor a `sku`; `invalid_argument` for an
  /// unknown `sku` and for a template folder that does not parse, with file and line.
  static Result<Service> open(ServiceOptions options = {});

  Service(Service&&) noexcept;
  Service& operator=(Service&&) noexcept;
  ~Service();

  /// Returns the best kernel known for the problem, ready to launch. It comes from memory (without
  /// a lock or an allocation), from a family of sizes that is in memory, from the cache (nothing is
  /// compiled), or from the miss policy. What other processes add to the cache is not looked for
  /// once the problem or its family is in memory.
  /// Concurrent callers for one problem share one lookup. Errors: `invalid_argument` for a problem
  /// that the operation does not accept; `not_found` if no template can run it, with the reason of
  /// each template; `refused` if the service is sealed and would need to compile.
  Result<Kernel> get_best_kernel(const Problem& problem) const;

  /// Returns the same for a launch on `stream` (a CUstream or cudaStream_t; null is the default
  /// stream), which may be in a capture. Then only kernels in memory are returned, for any size of
  /// their family: for others the driver would need to load, and a tuning would wait, which a
  /// capture does not survive. Finding a kernel in memory does not ask the driver. Errors also:
  /// `refused`, which names the problem and the remedy; the capture stays valid.
  Result<Kernel> get_best_kernel(const Problem& problem, void* stream) const;

  /// Returns the same without a reference, for programs that look a kernel up for each launch.
  Result<BorrowedKernel> borrow_best_kernel(const Problem& problem, void* stream) const;

  /// Returns the best kernel, as `get_best_kernel` does, and then the kernels that may take its
  /// place in a chain, at most `count` in all, the most promising first. They are for
  /// `ChainBuilder::add`: alone none is faster than the first, but a chain also counts what a
  /// kernel hides behind the one in front of it. They are the runners-up of the winner's record,
  /// which passed the same checks. Beside each kernel is the same with other arguments that only an
  /// early start makes use of. A prediction is followed by other predictions, which were checked as
  /// little as it was itself. Kernels that launch the same in a chain are returned once. Kernels
  /// that are not in the cache are compiled, if the service may compile, and left out if that
  /// fails. Later calls return the same kernels. They may differ in the last bits of their results.
  /// Errors: as for `get_best_kernel`.
  Result<std::vector<Kernel>> get_best_kernels(const Problem& problem, std::size_t count) const;

  /// Derives the problem of an operation from its tensors, and the shapes of the results that are
  /// not among them. `options` names the operation, and has the dims, dtypes and flags that tensors
  /// do not tell. The problem has all `scalars`, by name. Errors: `invalid_argument`, which names
  /// the argument and both values.
  Result<TensorBinding> bind(const Problem& options, const std::vector<GivenTensor>& tensors,
                             const std::vector<std::string>& scalars = {}) const;

  /// Returns the pattern of such a call, for calls with tensors of other sizes; nullopt if there is
  /// none. Errors: as for `bind`.
  Result<std::optional<BindingPattern>> pattern(const Problem& options,
                                                const std::vector<GivenTensor>& tensors,
                                                const std::vector<std::string>& scalars = {}) const;

  /// Returns what `get_best_kernel` returns if the kernel or its family is in memory, else nullopt.
  /// It never compiles, and asks neither the cache nor the driver.
  std::optional<Kernel> find_in_memory(const Problem& problem) const;

  /// Gets the best kernel of every problem, so that later calls find it in memory. A problem may
  /// have ranges, `m=1..8192`: then the kernels of all sizes are loaded. Errors:
  /// `not_found`, which lists every problem that cannot be served, with its reason; `unavailable`
  /// if it was stopped.
  Result<void> prewarm(const std::vector<Problem>& problems);

  /// Does the same for the problems of a worklist file, also one that `record_shapes` wrote. Errors
  /// also: `invalid_argument`, which names file and line; `not_found`; `io`.
  Result<void> prewarm_worklist(const std::string& file);

  /// Tunes the problem on the device, stores the record and returns the winner. Later calls of
  /// get_best_kernel return the winner too. If the problem has ranges, `m=1..8192`, all their sizes
  /// are tuned together, and the kernel of the largest is returned; of the options, `seconds` alone
  /// counts. Errors: `invalid_argument` for options that are out of
  /// range; `unavailable` without a GPU; `refused` if the service is sealed.
  Result<Kernel> tune(const Problem& problem, const TuneOptions& options = {});

  /// Ends the tunings that other threads wait for now, by `tune` or by a miss that is tuned. They
  /// fail with `unavailable` after at most their present step, keep nothing, and their worker
  /// process ends. A prewarming ends in the same way after at most its present problem. May be
  /// called from any thread.
  void stop_tuning();

  /// From now on appends every problem that is asked for to `file`, once, with how it was answered.
  /// The count of its lookups is appended when the recording or the service ends. The file is a
  /// worklist that `kernwright sweep` takes, in lines of JSON. Several processes may share it, and
  /// one that is killed loses only counts. An empty `file` ends the recording; another one takes
  /// its place. Meanwhile a lookup in memory costs a microsecond more. Errors: `invalid_argument`
  /// if the file exists and is something else; `io` if counts cannot be appended. Later failures go
  /// to the log. Thread-safe.
  Result<void> record_shapes(const std::string& file);

  /// From now on tunes each problem that is asked for and was not tuned, for about `seconds` each,
  /// before it is served: as `MissPolicy::tune_now`, also for kernels in memory. Errors are as for
  /// `tune`. With 0 the miss policy holds again. During a stream capture nothing is tuned.
  /// Thread-safe.
  void autotune(double seconds);

  /// Declares that all is compiled that will be needed, as a program does when it is ready to
  /// serve. Kernels in memory, and records whose bits are stored, are served as before. Every
  /// request that needs a compile from now on, a tuning included, names its problem in an error
  /// `refused` or in the log, as `mode` says, and is counted (`metrics`). With `error` tuning in
  /// the background ends; other calls that have begun end as they would. Sealing again changes the
  /// mode. Thread-safe.
  void seal(SealMode mode = SealMode::error);

  /// Returns how many of the problems that were asked for so far ended in each match, with the
  /// reason. Each problem is counted once, when it is looked up, and a size of a family again if it
  /// comes back after many others. Answers that are not `exact` are
  /// also in the cache's log of misses, which `kernwright cache misses` prints.
  std::vector<LookupCount> lookup_counts() const;

  /// Returns the figures that operators watch, in Prometheus' text format: lookups by match and
  /// reason, compiles and their seconds, requests that needed a compile after `seal`, loaded
  /// kernels and bytes, installed bundles, and `kernwright_ready`, which is 1 once the service is
  /// sealed. Serve it to a scraper, or write it to a file for node_exporter. Finding a kernel in
  /// memory counts nothing and costs nothing more. Thread-safe.
  std::string metrics() const;

  /// Returns the record that answers the problem: the winner, by how much it won, how sure that is,
  /// and what was measured. Nothing is compiled, counted or tuned. Errors: `not_found` if there is
  /// no record of this problem itself; `corrupt` if its file cannot be read; `invalid_argument`.
  Result<std::string> record(const Problem& problem, RecordForm form = RecordForm::json) const;

  /// Compiles one template at one configuration, through the compile pool and the artifact store,
  /// and tunes nothing. Parameters that are left out take the template's defaults. Errors:
  /// `invalid_argument` if a rule fails, which names the rule and both values; `compile` with the
  /// compiler's log; `refused` if the service is sealed and the artifact is not stored.
  Result<Compilation> compile(const Problem& problem, std::string_view kernel_template,
                              const ParameterValues& parameters) const;

 private:
  explicit Service(std::shared_ptr<ServiceCore> core);
  std::shared_ptr<ServiceCore> core_;
};

/// Does the same as `Service::bind` for a built-in operation.
KERNWRIGHT_API Result<TensorBinding> bind(const Problem& options,
                                          const std::vector<GivenTensor>& tensors,
                                          const std::vector<std::string>& scalars);

/// Returns the contract of a built-in operation as a JSON object: dims, dtypes, flags, tensors,
/// scalars and how it is called. Errors: `not_found`, with the operations that there are.
KERNWRIGHT_API Result<std::string> describe_operation(const std::string& name);

/// Calls `Service::get_best_kernel` on a default service: GPU 0, the default cache, prediction on a
/// miss. The service is opened on first use and kept until the process ends.
KERNWRIGHT_API Result<Kernel> get_best_kernel(const Problem& problem);

}  // namespace kernwright
