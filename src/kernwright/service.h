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

/// What to do when the cache has no record for a problem.
enum class MissPolicy {
  predict,   ///< rank by the cost model, compile the best and serve it at once
  tune_now,  ///< tune on the device, then serve the winner
  /// serve at once as `predict` does, tune meanwhile, and serve the winner from then on; also what
  /// is served from records, but not exactly (`Match`), is tuned again. Handles that were given out
  /// stay as they are.
  tune_in_background,
  fail  ///< `not_found`
};

enum class LogLevel { debug, info, warning };

/// What a service works with. Every field has a default, so that `Service::open({.sku = "h200"})`
/// names what differs.
struct ServiceOptions {
  /// Directory of the cache; empty: $KERNWRIGHT_CACHE, else $XDG_CACHE_HOME/kernwright, else
  /// ~/.cache/kernwright.
  std::string cache = {};
  /// Further cache directories, only read.
  std::vector<std::string> read_only_caches = {};
  /// Folders with operations and templates of your own, laid out as `templates/`.
  std::vector<std::string> template_dirs = {};
  /// Files with functions, `clamp.cu` or `clamp.ltoir`, that problems name, `epilogue=clamp`. What
  /// is in the cache needs no file: a problem may say `epilogue=` and the digest that its key has.
  std::vector<std::string> epilogues = {};
  /// The GPU, by the driver's number.
  int device = 0;
  /// A profile id such as "h200": work for that SKU with no GPU. Empty: the GPU `device`.
  std::string sku = {};
  /// What kernels are tuned for; records of another state are not served. `mixed` is refused for
  /// an operation that marks no tensor as warm.
  L2State l2 = L2State::cold;
  MissPolicy on_miss = MissPolicy::predict;
  /// Budget of one tuning where `on_miss` is tune_now or tune_in_background.
  double tune_seconds = 30;
  /// GPU time that tuning in the background may take in all.
  double background_seconds = 600;
  /// The worst match that is served; worse ones are `not_found`, and then nothing is ever compiled.
  /// `none`: whatever the miss policy gives. A fleet that has a complete bundle says `recheck`.
  Match min_match = Match::none;
  /// The program that tuning measures in, `kernwright`; empty: beside this library or the running
  /// program, or in the `bin` folder next to either.
  std::string worker = {};
  /// Measure in this process instead: a candidate that faults then costs the process the GPU.
  bool measure_in_process = false;
  /// Make every launch a `Kernel::launch_checked`: for debugging.
  bool check_launches = false;
  /// Compiles run at once; 0: all cores but two, at least one.
  int compile_threads = 0;
  /// Gets warnings and notes; the library itself never prints. Called from any thread.
  std::function<void(LogLevel, std::string_view)> log = {};
};

/// Registers, spills and memory of a compiled kernel.
struct ResourceReport {
  int registers = 0;
  int spill_bytes = 0;
  int stack_bytes = 0;
  int static_smem_bytes = 0;
  std::vector<std::string> warnings = {};  ///< compiler warnings that cost speed
};

/// A kernel compiled without tuning it.
struct Compilation {
  std::string artifact = {};  ///< digest of everything it was compiled from, hex
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

/// Tuned kernels for one device: looks records up in the cache, compiles, loads and hands out
/// kernels. Thread-safe. Kernels it gave out stay valid until it is destroyed.
///
/// Compiling and tuning start threads, which a fork leaves behind: in a process that was forked
/// after that, what is in memory is still found, but opening a service, a new lookup and tuning
/// fail with `unavailable`. CUDA does not survive a fork either. Fork before the first lookup, or
/// start a new process.
class KERNWRIGHT_API Service {
 public:
  /// Errors: `unavailable` where there is neither the GPU nor a `sku`; `invalid_argument` for an
  /// unknown `sku` and for a template folder that does not parse, with file and line.
  static Result<Service> open(ServiceOptions options = {});

  Service(Service&&) noexcept;
  Service& operator=(Service&&) noexcept;
  ~Service();

  /// The best kernel known for the problem, ready to launch: from memory (no lock, no allocation),
  /// from the cache (nothing is compiled), or by the miss policy. Concurrent callers for one
  /// problem share one lookup. Errors: `invalid_argument` for a problem the operation does not
  /// accept; `not_found` where no template can run it, with each one's reason.
  Result<Kernel> get_best_kernel(const Problem& problem) const;

  /// Gets the best kernel of every problem, so that later calls find it in memory. Errors:
  /// `not_found` listing every problem that cannot be served, with its reason.
  Result<void> prewarm(const std::vector<Problem>& problems) const;

  /// Tunes the problem on the device for about `seconds`, stores the record and returns the winner;
  /// later calls of get_best_kernel return it too. Errors: `unavailable` without a GPU.
  Result<Kernel> tune(const Problem& problem, double seconds = 30) const;

  /// How the problems asked for so far were answered: each is counted once, when it is looked up.
  /// What is not `exact` is also in the cache's miss log, `kernwright cache misses`.
  std::vector<LookupCount> lookup_counts() const;

  /// The compiler without the tuner: one template at one configuration, through the compile pool
  /// and the artifact store. Parameters left out take the template's defaults. Errors:
  /// `invalid_argument` where a rule fails, naming it with both values; `compile` with the log.
  Result<Compilation> compile(const Problem& problem, std::string_view kernel_template,
                              const ParameterValues& parameters) const;

 private:
  explicit Service(std::shared_ptr<ServiceCore> core);
  std::shared_ptr<ServiceCore> core_;
};

/// `Service::get_best_kernel` on a default service: GPU 0, the default cache, prediction on a miss;
/// opened on first use, kept until the process ends.
KERNWRIGHT_API Result<Kernel> get_best_kernel(const Problem& problem);

}  // namespace kernwright
