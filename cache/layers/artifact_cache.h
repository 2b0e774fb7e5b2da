#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cache/layers/tiered_cache.h"
#include "compile/compile_pool.h"
#include "support/mutex.h"

namespace kernwright {

/// The artifacts of all layers, for a compile pool. The user's directory gets every compiled
/// artifact, and every artifact that another layer has too, so that a record there needs no other
/// layer. If several processes on that directory want one artifact, one of them compiles it. The
/// others wait for it, at most for `patience`, and then do it themselves. Different artifacts never
/// wait for each other. Thread-safe.
class ArtifactCache final : public CompileCache {
 public:
  ArtifactCache(TieredCache cache, std::chrono::milliseconds patience)
      : cache_(std::move(cache)), patience_(patience) {}

  std::shared_ptr<const CompiledKernel> find(const std::string& digest) override;
  CompileResult find_or_compile(const std::string& digest,
                                const std::function<CompileResult()>& compile) override;
  void stop() override { stop_ = true; }

  /// Returns why the latest artifact that could not be stored since the last call was not stored;
  /// empty if all were stored. Nothing else comes of it: an artifact that cannot be stored is
  /// compiled all the same.
  std::string take_failure();

 private:
  void put(const std::string& digest, const CompiledKernel& kernel);

  const TieredCache cache_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::string failure_ KW_GUARDED_BY(mutex_);
};

}  // namespace kernwright
