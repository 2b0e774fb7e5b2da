#pragma once

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cache/artifact_store.h"
#include "compile/compile_pool.h"
#include "model/candidate.h"
#include "model/catalog.h"
#include "model/trial.h"
#include <kernwright/result.h>

namespace kernwright {

/// Compiles candidates ahead of whoever measures them. Requests that are equal, and those whose
/// artifact is stored, are compiled once or not at all. Used by one thread.
class CompileAhead {
 public:
  /// `candidates` outlives it. `compiler` is the identity that enters artifact digests.
  CompileAhead(std::span<const Candidate> candidates, const Catalog& catalog, int sm_arch,
               std::string compiler, CompilePool& pool, const ArtifactStore& artifacts)
      : candidates_(candidates),
        catalog_(catalog),
        sm_arch_(sm_arch),
        compiler_(std::move(compiler)),
        pool_(pool),
        artifacts_(artifacts) {}

  /// A candidate whose compile has ended.
  struct Ready {
    std::size_t candidate = 0;
    std::string digest;  ///< of its artifact, hex
    CompileResult kernel;
  };

  void start(std::size_t candidate);

  /// True while further starts keep the pool busy and not far ahead of the measuring.
  bool wants_more() const;
  bool empty() const { return pending_.empty(); }

  /// The first in the order of the starts whose compile has ended.
  std::optional<Ready> take();
  /// The same for one candidate that was started, however long it takes.
  Ready wait_for(std::size_t candidate);
  /// Returns when one may be ready, after a millisecond at most.
  void wait() const;

  /// Compiles that ended and were taken, and the seconds they took on the pool's threads.
  int compiled() const { return compiled_; }
  double compile_seconds() const { return compile_seconds_; }

 private:
  struct Compile {
    std::shared_future<CompileResult> future;
    bool stored = false;
    bool counted = false;
  };
  struct Pending {
    std::size_t candidate = 0;
    std::string digest;
  };

  Ready finish(const std::deque<Pending>::iterator& pending);
  bool ended(const Pending& pending) const;

  std::span<const Candidate> candidates_;
  const Catalog& catalog_;
  int sm_arch_;
  std::string compiler_;
  CompilePool& pool_;
  const ArtifactStore& artifacts_;
  std::map<std::string, Compile> compiles_;  ///< by digest
  std::deque<Pending> pending_;
  int compiled_ = 0;
  double compile_seconds_ = 0;
};

/// Why a compiled candidate is not worth loading: it did not compile, spills beyond what its
/// manifest allows, or does not fit the device. `ok` otherwise, with the compiler's warnings as
/// detail.
struct CompileVerdict {
  Outcome outcome = Outcome::ok;
  std::string detail;
};
CompileVerdict judge(const Candidate& candidate, const CompileResult& compiled,
                     const DeviceProfile& profile);

}  // namespace kernwright
