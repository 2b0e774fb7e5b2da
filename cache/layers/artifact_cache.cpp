#include "cache/layers/artifact_cache.h"

#include "cache/entries/key_lock.h"
#include "support/processes/process_exit.h"

namespace kernwright {

std::shared_ptr<const CompiledKernel> ArtifactCache::find(const std::string& digest) {
  if (Lookup<CompiledKernel> own = cache_.artifacts().get(digest)) {
    return std::make_shared<const CompiledKernel>(*std::move(own.value));
  }
  if (cache_.roots().size() == 1) return nullptr;
  Lookup<CompiledKernel> other = cache_.artifact(digest);
  if (!other) return nullptr;
  put(digest, *other.value);
  return std::make_shared<const CompiledKernel>(*std::move(other.value));
}

CompileResult ArtifactCache::find_or_compile(const std::string& digest,
                                             const std::function<CompileResult()>& compile) {
  const KeyLock turn =
      KeyLock::acquire(cache_.root(), digest, patience_, [this] { return stop_ || exiting(); });
  if (auto found = find(digest)) return found;
  CompileResult compiled = compile();
  if (compiled) put(digest, **compiled);
  return compiled;
}

std::string ArtifactCache::take_failure() {
  const MutexLock lock(mutex_);
  return std::exchange(failure_, {});
}

void ArtifactCache::put(const std::string& digest, const CompiledKernel& kernel) {
  const Result<void> stored = cache_.put_artifact(digest, kernel);
  if (stored) return;
  const MutexLock lock(mutex_);
  failure_ = stored.error().message;
}

}  // namespace kernwright
