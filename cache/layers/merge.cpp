#include "cache/layers/merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "cache/records/record_view.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr double kNoise = 0.02;

/// The newest measured record of the highest trust.
struct Best {
  TuningRecord record;

  bool worse_than(const TuningRecord& other) const {
    return record.trust != other.trust ? record.trust > other.trust
                                       : record.created < other.created;
  }
};

void keep_best(std::map<std::string, Best>& best, const TuningRecord& record) {
  if (record.grade != RecordGrade::measured) return;
  const auto [at, added] = best.try_emplace(record.key.text(), Best{record});
  if (!added && at->second.worse_than(record)) at->second.record = record;
}

std::optional<Disagreement> compare(const TuningRecord& ours, const TuningRecord& theirs) {
  const HeadWinner a = winner_of(ours.winner, ours.rounds);
  const HeadWinner b = winner_of(theirs.winner, theirs.rounds);
  if (a.choice == b.choice || a.measured_us <= 0 || b.measured_us <= 0) return std::nullopt;
  const double faster = std::min(a.measured_us, b.measured_us);
  const double apart = std::abs(a.measured_us - b.measured_us);
  const double spread = final_times(ours.winner, ours.rounds).in_turn.mad_us() +
                        final_times(theirs.winner, theirs.rounds).in_turn.mad_us();
  if (apart <= std::max(kNoise * faster, 3 * spread)) return std::nullopt;
  return Disagreement{ours.key.text(), a, b, 1 + apart / faster};
}

/// Copies `file` from `from` to the same place below `to`. Returns true unless a file was there
/// already.
Result<bool> take_over(const fs::path& file, const fs::path& from, const fs::path& to) {
  const fs::path target = to / file.lexically_relative(from);
  std::error_code error;
  if (fs::exists(target, error)) return false;
  KW_ASSIGN(const std::string bytes, read_file(file, {}, from));
  KW_TRY(publish_file(target, bytes, to));
  return true;
}

}  // namespace

Result<MergeReport> merge(const TieredCache& into, const fs::path& from) {
  MergeReport report;
  const auto count = [](const Result<bool>& taken, std::int64_t& counter) -> Result<void> {
    // Another process may have removed it since it was listed.
    if (!taken && taken.error().code != ErrorCode::not_found) return taken.error();
    counter += taken && *taken ? 1 : 0;
    return {};
  };
  // Without its bits a file would be a defect of this cache from then on.
  const auto has_bits = [&](const fs::path& file, std::string_view whose,
                            const std::string& artifact) -> Result<bool> {
    if (into.artifact(artifact)) return true;
    const Lookup<CompiledKernel> bits = TieredCache(from).artifact(artifact);  // of its bundle
    if (!bits) {
      report.defects.push_back(
          concat(file.native(), ": ", whose, " artifact ", artifact, " is in neither cache"));
      return false;
    }
    KW_TRY(into.put_artifact(artifact, *bits.value));
    ++report.artifacts;
    return true;
  };
  std::map<std::string, Best> ours;
  for (const RecordStore::Listed& listed : into.records().list()) {
    if (listed.record) keep_best(ours, *listed.record.value);
  }
  // Artifacts are copied first, so that a visible record always has its artifact.
  const ArtifactStore artifacts(from);
  for (const FilesBelow::Unread& one : files_below(from / "v1" / "artifacts", from).unread) {
    report.defects.push_back(one.error.message);
  }
  for (const std::string& digest : artifacts.list()) {
    const fs::path file = artifacts.path(digest);
    if (const Lookup<CompiledKernel> found = artifacts.get(digest); !found) {
      if (found.reason != MissReason::absent) report.defects.push_back(found.detail);
      continue;
    }
    KW_TRY(count(take_over(file, from, into.root()), report.artifacts));
  }
  std::map<std::string, Best> theirs;
  const RecordStore records(from);
  for (const RecordStore::Listed& listed : records.list()) {
    if (!listed.record) {
      report.defects.push_back(listed.record.detail);
      continue;
    }
    KW_ASSIGN(const bool whole,
              has_bits(listed.path, "its winner's", listed.record.value->winner.artifact));
    if (!whole) continue;
    keep_best(theirs, *listed.record.value);
    const Lookup<TrialTable> trials = read_trials(listed.path, listed.record.value->key, from);
    if (trials) {
      std::int64_t ignored = 0;
      KW_TRY(count(take_over(trials_file(listed.path), from, into.root()), ignored));
    } else if (trials.reason != MissReason::absent) {
      report.defects.push_back(trials.detail);
    }
    KW_TRY(count(take_over(listed.path, from, into.root()), report.records));
  }
  for (const RecordStore::ListedOverride& listed : records.list_overrides()) {
    if (!listed.override) {
      report.defects.push_back(listed.override.detail);
      continue;
    }
    KW_TRY(count(take_over(listed.path, from, into.root()), report.overrides));
  }
  for (const RecordStore::ListedFamily& listed : records.list_families()) {
    if (!listed.family) {
      report.defects.push_back(listed.family.detail);
      continue;
    }
    bool whole = true;
    for (const FamilyKernel& kernel : listed.family.value->head.kernels) {
      KW_ASSIGN(const bool has,
                has_bits(listed.path, concat(kernel.choice.id(), "'s"), kernel.artifact));
      whole = whole && has;
    }
    if (whole) KW_TRY(count(take_over(listed.path, from, into.root()), report.families));
  }
  for (const auto& [key, best] : theirs) {
    const auto known = ours.find(key);
    if (known == ours.end()) continue;
    if (auto differ = compare(known->second.record, best.record)) {
      report.disagreements.push_back(*std::move(differ));
    }
  }
  return report;
}

}  // namespace kernwright
