#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

namespace kernwright {

class ServiceCore;

/// How far the search of a tuning is.
struct TuneProgress {
  int candidates = 0;  ///< that there are
  int measured = 0;
  double best_us = 0;  ///< of the best so far; 0 before there is one
  double seconds = 0;  ///< since the search began
};

/// What a service does when the cache has no record for a problem.
enum class MissPolicy {
  predict,   ///< rank by the cost model, compile the best candidate and serve it at once
  tune_now,  ///< tune on the device, then serve the winner
  /// Serve at once as `predict` does, tune meanwhile, and serve the winner from then on. What
  /// records answer, but not exactly (`Match`), is tuned again too. Handles that were given out
  /// before stay as they are.
  tune_in_background,
  fail  ///< return `not_found`
};

/// What a sealed service does about a compile.
enum class SealMode {
  error,   ///< it is refused
  warning  ///< it is written to the log, and goes on
};

/// The form in which a record is given.
enum class RecordForm {
  json,  ///< for tools: one object, as a report has it of each problem
  html   ///< for people: a part of a page, without script and with nothing to ask for
};

enum class LogLevel { debug, info, warning };

/// What a service works with. Every field has a default, so a caller names only what differs:
/// `Service::open({.sku = "h200"})`.
struct ServiceOptions {
  /// The directory of the cache. Empty: $KERNWRIGHT_CACHE, else $XDG_CACHE_HOME/kernwright, else
  /// ~/.cache/kernwright.
  std::string cache = {};
  /// Further cache directories, which the service only reads.
  std::vector<std::string> read_only_caches = {};
  /// The same for bundles that packages bring: a folder is that of one unpacked bundle. It is read
  /// whole once, and is passed over with a warning if others than this user and root may write to
  /// it, or a file is not as its manifest says. Files that are replaced later are not served.
  std::vector<std::string> signed_caches = {};
  /// Folders with operations and templates of your own. They have the layout of `templates/`.
  std::vector<std::string> template_dirs = {};
  /// Files with functions of your own, `clamp.cu` or `clamp.ltoir`. Problems name them:
  /// `epilogue=clamp`. A kernel in the cache needs no file: a problem may give the digest that its
  /// key has in place of the name.
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
  /// The budget of one tuning, where `on_miss` is tune_now or tune_in_background.
  double tune_seconds = 30;
  /// The GPU time in seconds that tuning in the background may take in all.
  double background_seconds = 600;
  /// The worst match that is served. With `none` the service serves whatever the miss policy gives.
  /// With any other value a worse match is `not_found`, and the service never compiles anything. A
  /// fleet that has a complete bundle says `recheck`.
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
  /// How many compiles run at the same time. 0: all cores but two, at least one.
  int compile_threads = 0;
  /// Gets warnings and notes, from any thread. The library itself never prints.
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

/// How many lookups ended in one match for one reason.
struct LookupCount {
  Match match = Match::none;
  MissReason reason = MissReason::none;
  std::uint64_t count = 0;
};

/// A template's parameters by name.
using ParameterValues = std::vector<std::pair<std::string, std::int64_t>>;

/// Gives tuned kernels for one device. It looks records up in the cache, compiles, loads and hands
/// out kernels. Thread-safe. The kernels that it gave out stay valid until it is destroyed.
///
/// Compiling and tuning start threads, and a fork leaves these behind. In a process that was forked
/// after that, a kernel in memory is still found, but opening a service, a new lookup and tuning
/// fail with `unavailable`. CUDA does not survive a fork either. So fork before the first lookup,
/// or start a new process.
class KERNWRIGHT_API Service {
 public:
  /// Errors: `unavailable` where there is neither the GPU nor a `sku`; `invalid_argument` for an
  /// unknown `sku` and for a template folder that does not parse, with file and line.
  static Result<Service> open(ServiceOptions options = {});

  Service(Service&&) noexcept;
  Service& operator=(Service&&) noexcept;
  ~Service();

  /// Returns the best kernel known for the problem, ready to launch. It comes from memory (without
  /// a lock or an allocation), from the cache (nothing is compiled), or from what the miss policy
  /// does. Concurrent callers for one problem share one lookup. Errors: `invalid_argument` for a
  /// problem that the operation does not accept; `not_found` where no template can run it, with the
  /// reason of each template; `refused` where the service is sealed and would have to compile.
  Result<Kernel> get_best_kernel(const Problem& problem) const;

  /// The same for a launch on `stream` (a CUstream or cudaStream_t; null is the default stream),
  /// which may be in a capture. Then only what is in memory is given: for the rest the driver would
  /// have to load, and a tuning would wait, which a capture does not survive. Finding a kernel in
  /// memory does not ask the driver. Errors also: `refused`, which names the problem and the
  /// remedy; the capture stays valid.
  Result<Kernel> get_best_kernel(const Problem& problem, void* stream) const;

  /// The best kernel as `get_best_kernel` gives it, and then what may take its place in a chain, at
  /// most `count` kernels in all, the most promising first. They are for `ChainBuilder::add`: alone
  /// none is faster than the first, but a chain also counts what a kernel hides behind the one in
  /// front of it. They are the runners-up of the winner's record, which passed the same checks, and
  /// beside each kernel the same with other arguments that only an early start makes use of. A
  /// prediction has other predictions behind it, which were checked as little as it was itself.
  /// Kernels that launch the same in a chain are given once. What is not in the cache is compiled,
  /// where the service may compile, and left out where it fails. Later calls give the same kernels.
  /// They may differ in the last bits of their results. Errors: those of `get_best_kernel`.
  Result<std::vector<Kernel>> get_best_kernels(const Problem& problem, std::size_t count) const;

  /// Gets the best kernel of every problem, so that later calls find it in memory. Errors:
  /// `not_found`, which lists every problem that cannot be served, with its reason; `unavailable`
  /// where it was stopped.
  Result<void> prewarm(const std::vector<Problem>& problems) const;

  /// The same for the problems of a worklist file, also one that `record_shapes` wrote. Errors
  /// also: `invalid_argument`, which names file and line; `not_found`; `io`.
  Result<void> prewarm_worklist(const std::string& file) const;

  /// Tunes the problem on the device for about `seconds`, stores the record and returns the winner.
  /// Tells `progress` meanwhile how far it is, in the thread that called this, and not after it
  /// has returned. Later calls of get_best_kernel return the winner too. Errors: `invalid_argument`
  /// unless `seconds` is above 0; `unavailable` without a GPU; `refused` where the service is
  /// sealed.
  Result<Kernel> tune(const Problem& problem, double seconds = 30,
                      const std::function<void(const TuneProgress&)>& progress = {}) const;

  /// Ends the tunings that other threads wait for now, by `tune` or by a miss that is tuned. They
  /// fail with `unavailable` after at most the step that they are at, keep nothing, and their
  /// worker process ends. A prewarming ends in the same way after at most the problem that it is
  /// at. From any thread.
  void stop_tuning() const;

  /// From now on appends every problem that is asked for to `file`, once, with how it was answered.
  /// How often it was asked for is appended when the recording or the service ends. The file is a
  /// worklist that `kernwright sweep` takes, in lines of JSON. Several processes may share it, and
  /// one that is killed loses counts alone. An empty `file` ends the recording; another one takes
  /// its place. Meanwhile a lookup in memory costs a microsecond more. Errors: `invalid_argument`
  /// where the file is there and is something else; `io` where counts cannot be appended. Later
  /// failures go to the log. Thread-safe.
  Result<void> record_shapes(const std::string& file) const;

  /// From now on tunes what was not tuned for the problem asked for, for about `seconds` each,
  /// before it is served: as `MissPolicy::tune_now`, also for what is in memory. Errors are those
  /// of `tune`. With 0 the miss policy holds again. During a stream capture nothing is tuned.
  /// Thread-safe.
  void autotune(double seconds) const;

  /// Declares that all is compiled that will be needed, as a program does when it is ready to
  /// serve. What is in memory, and records whose bits are stored, are served as before. Whatever
  /// needs a compile from now on, a tuning among it, names its problem in an error `refused` or in
  /// the log, as `mode` says, and is counted (`metrics`). With `error` tuning in the background
  /// ends; other calls that have begun end as they would. Sealing again changes the mode.
  /// Thread-safe.
  void seal(SealMode mode = SealMode::error) const;

  /// How the problems that were asked for so far were answered. Each problem is counted once, when
  /// it is looked up. Answers that are not `exact` are also in the cache's log of misses, which
  /// `kernwright cache misses` prints.
  std::vector<LookupCount> lookup_counts() const;

  /// What operators watch, in Prometheus' text format: lookups by match and reason, compiles and
  /// their seconds, what needed a compile after `seal`, loaded kernels and bytes, installed
  /// bundles, and `kernwright_ready`, which is 1 once the service is sealed. Hand it out where a
  /// scraper asks, or write it to a file for node_exporter. Finding a kernel in memory counts
  /// nothing and costs nothing more. Thread-safe.
  std::string metrics() const;

  /// The record that answers the problem: what won, by how much, how sure that is, and what was
  /// measured. Nothing is compiled, counted or tuned. Errors: `not_found` where no record is of
  /// this problem itself; `corrupt` where its file cannot be read; `invalid_argument`.
  Result<std::string> record(const Problem& problem, RecordForm form = RecordForm::json) const;

  /// Compiles one template at one configuration, through the compile pool and the artifact store,
  /// and tunes nothing. Parameters that are left out take the template's defaults. Errors:
  /// `invalid_argument` where a rule fails, which names the rule and both values; `compile` with
  /// the compiler's log; `refused` where the service is sealed and the artifact is not stored.
  Result<Compilation> compile(const Problem& problem, std::string_view kernel_template,
                              const ParameterValues& parameters) const;

 private:
  explicit Service(std::shared_ptr<ServiceCore> core);
  std::shared_ptr<ServiceCore> core_;
};

/// `Service::get_best_kernel` on a default service: GPU 0, the default cache, prediction on a miss.
/// The service is opened on first use and kept until the process ends.
KERNWRIGHT_API Result<Kernel> get_best_kernel(const Problem& problem);

}  // namespace kernwright
