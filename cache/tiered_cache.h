#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cache/artifact_store.h"
#include "cache/miss.h"
#include "cache/record.h"
#include "cache/record_store.h"
#include <kernwright/result.h>

namespace kernwright {

/// `$KERNWRIGHT_CACHE`, else `$XDG_CACHE_HOME/kernwright`, else `~/.cache/kernwright`. Where no
/// home is known, a place that cannot hold anything: every lookup misses and every put says so.
std::filesystem::path default_cache_root();

/// A record and how well it fits the environment asked for.
struct GradedRecord {
  TuningRecord record;
  Match match = Match::none;
  MissReason reason = MissReason::none;  ///< why it is not `exact`
};

/// The lookup over layers. Layer 0 is the user's directory, the only one written to; further ones
/// are read-only. Selection is by grade first, layer second.
class TieredCache {
 public:
  explicit TieredCache(std::filesystem::path user_root,
                       const std::vector<std::filesystem::path>& read_only_roots = {});

  /// The environment that records are compared with.
  struct Now {
    std::string compiler;  ///< empty: not known (no toolkit loaded), not compared
    std::string driver;    ///< empty: no driver, not compared
    std::string kernwright;
  };
  using TemplateDigest = std::function<std::string(std::string_view kernel_template)>;

  /// All records of the key that can be served, with their grades, best first: measured before
  /// predicted, made with today's code before seeds, higher trust before lower, better match before
  /// worse, earlier layer before later, newer before older. So what was measured under less trust
  /// never stands before what was measured under more.
  /// `template_digest` gives the digest of a template as it is now (empty where it does not exist).
  /// `reason` says why there is nothing, where there is nothing.
  std::vector<GradedRecord> lookup(const RecordKey& key, const Now& now,
                                   const TemplateDigest& template_digest, MissReason& reason) const;

  Lookup<CompiledKernel> artifact(std::string_view digest_hex) const;
  Result<void> put_artifact(std::string_view digest_hex, const CompiledKernel& kernel) const;
  Result<std::filesystem::path> put_record(const TuningRecord& record) const;

  const std::filesystem::path& root() const { return root_; }
  const RecordStore& records() const { return records_.front(); }
  const ArtifactStore& artifacts() const { return artifacts_.front(); }

 private:
  std::filesystem::path root_;
  std::vector<RecordStore> records_;
  std::vector<ArtifactStore> artifacts_;
};

}  // namespace kernwright
