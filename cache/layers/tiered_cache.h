#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cache/entries/miss.h"
#include "cache/records/family_record.h"
#include "cache/records/override.h"
#include "cache/stores/artifact_store.h"
#include "cache/stores/record_store.h"
#include "model/operation/bound_problem.h"
#include <kernwright/result.h>

namespace kernwright {

/// The head of a record and how well it fits the environment asked for.
struct GradedRecord {
  RecordHead head;
  Match match = Match::none;
  MissReason reason = MissReason::none;  ///< why it is not `exact`
  /// The file with the evidence; empty for a pin that no record has.
  std::string file = {};
};

/// The results of a lookup.
struct Answers {
  std::vector<GradedRecord> records;       ///< best first
  MissReason reason = MissReason::absent;  ///< if there are no records
  Decisions decisions;
  std::vector<std::string> defects;  ///< the defects of files that were skipped
};

/// The lookup over layers. Layer 0 is the user's directory, the only one written to; further ones
/// are read-only. Selection is by grade first, layer second.
class TieredCache {
 public:
  /// The bundle that is installed below the user's directory, if there is one, is the last layer.
  explicit TieredCache(std::filesystem::path user_root,
                       const std::vector<std::filesystem::path>& read_only_roots = {});

  /// The environment that records are compared with.
  struct Now {
    std::string compiler;  ///< empty: not known (no toolkit loaded), not compared
    std::string driver;    ///< empty: no driver, not compared
    std::string kernwright;
  };
  using TemplateDigest = std::function<std::string(std::string_view kernel_template)>;

  /// Returns all records of the key that can be served, with their grades, best first. The order
  /// is: pinned first; measured before predicted; made with today's code before stale code; higher
  /// trust before lower; better match before worse; earlier layer before later; newer before older.
  /// So a record of lower trust never precedes one of higher trust. If a record's winner is banned,
  /// its best runner-up that is not banned is served. `template_digest` returns the digest of a
  /// template as it is now, empty if the template does not exist.
  Answers lookup(const RecordKey& key, const Now& now, const TemplateDigest& template_digest) const;

  /// Returns records that were measured with today's code for other shapes, and that may answer for
  /// `problem`, whose key is `key`. The nearest come first (see `bucket_distance`), then the order
  /// is as in `lookup`. No more than a few of the nearest are read. None of them is banned by
  /// `decisions`.
  std::vector<GradedRecord> near(const RecordKey& key, const BoundProblem& problem, const Now& now,
                                 const TemplateDigest& template_digest,
                                 const Decisions& decisions) const;

  /// A family's record, and what people decided about its kernels.
  struct FoundFamily {
    FamilyHead head;
    std::string file;  ///< with the evidence
    Decisions decisions;
  };
  /// Returns the best record of each family of the operation, target, SKU and policy of `like`:
  /// higher trust before lower, an earlier layer before a later one, newer before older.
  std::vector<FoundFamily> families(const RecordKey& like) const;

  /// Returns what people decided about the candidates of a key.
  Decisions decisions(const RecordKey& key) const;

  /// Returns a kernel of a family as an answer, whose match is `family` or worse. It is `none` if
  /// there is no such template.
  static GradedRecord graded(const FamilyHead& family, const FamilyKernel& kernel, const Now& now,
                             const TemplateDigest& template_digest);

  Lookup<CompiledKernel> artifact(std::string_view digest_hex) const;
  Result<void> put_artifact(std::string_view digest_hex, const CompiledKernel& kernel) const;
  Result<std::filesystem::path> put_record(const TuningRecord& record,
                                           const TrialTable* trials = nullptr) const;
  /// See `RecordStore::replace`. A record of a further layer stays there, and is found after the
  /// new one.
  Result<std::filesystem::path> replace_record(const std::string& file,
                                               const TuningRecord& record) const;
  Result<std::filesystem::path> put_family(const FamilyRecord& family) const;
  Result<std::filesystem::path> put_override(const Override& override) const;

  const std::filesystem::path& root() const { return roots_.front(); }

  /// Returns the folder with the logs of searches, one for each key. They are not part of a lookup:
  /// a search appends its trials as they end, so that one that is killed loses none, and the next
  /// search of the key begins its log anew.
  std::filesystem::path logs() const { return root() / "trials"; }
  std::filesystem::path log(const RecordKey& key) const;
  /// Returns all roots, the user's first.
  const std::vector<std::filesystem::path>& roots() const { return roots_; }
  const RecordStore& records() const { return records_.front(); }
  const ArtifactStore& artifacts() const { return artifacts_.front(); }

 private:
  std::vector<std::filesystem::path> roots_;
  std::vector<RecordStore> records_;
  std::vector<ArtifactStore> artifacts_;
};

}  // namespace kernwright
