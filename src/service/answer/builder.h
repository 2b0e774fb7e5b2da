#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cache/layers/artifact_cache.h"
#include "cache/layers/tiered_cache.h"
#include "compile/compile_pool.h"
#include "compile/compiler.h"
#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include "service/answer/seal.h"
#include "support/mutex.h"
#include "support/processes/threads.h"
#include <kernwright/result.h>

namespace kernwright {

/// A kernel's bits, and whether they were in the cache.
struct Artifact {
  std::string digest;
  std::shared_ptr<const CompiledKernel> kernel;
  bool cached = false;
};

/// Provides the bits of candidates for one architecture: stored ones, or else compiles and stores
/// them. Its pool is the only one of a service, for tuning and for predicting too. Thread-safe.
class Builder {
 public:
  struct Options {
    int threads = 0;                        ///< see `CompilePoolOptions`
    std::chrono::milliseconds patience{0};  ///< see `ArtifactCache`
    std::function<void(LogLevel, std::string_view)> log = {};
  };
  /// `catalog` and `cache` outlive it.
  Builder(const Catalog& catalog, int sm_arch, const TieredCache& cache,
          std::unique_ptr<Compiler> compiler, Options options);

  /// Errors: from the compiler; `invalid_argument` if the code does not fit its launches;
  /// `unavailable` in a forked process; from the seal, unless the bits are stored.
  Result<Artifact> build(const Candidate& candidate);

  /// Compiles the candidate again, even if its bits are stored, and compares them with the bits
  /// that `digest` names. Returns `other_code` if the candidate has another digest today. Errors:
  /// `unavailable` without a toolkit; `not_found` if nothing is stored; from the compiler.
  enum class Recompiled { same, differs, other_code };
  Result<Recompiled> recompile(const Candidate& candidate, const std::string& digest);

  /// Loads the toolkit. Errors: `unavailable` without one.
  Result<void> load_compiler();
  /// Returns the compiler's identity; empty until something needed it. A process that only serves
  /// stored bits never loads the toolkit.
  std::string compiler() const;

  /// The users of the pool must ask the seal first.
  Seal& seal() { return seal_; }
  const Seal& seal() const { return seal_; }
  CompilePool& pool() { return *pool_; }
  const CompilePool& pool() const { return *pool_; }
  /// See `ArtifactCache::take_failure`.
  std::string take_failure() { return artifacts_->take_failure(); }

 private:
  const Catalog& catalog_;
  const int sm_arch_;
  const TieredCache& cache_;
  std::shared_ptr<ArtifactCache> artifacts_;
  std::unique_ptr<CompilePool> pool_;
  Seal seal_;
  mutable Mutex mutex_;
  std::string compiler_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
