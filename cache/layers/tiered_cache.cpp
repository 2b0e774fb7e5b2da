#include "cache/layers/tiered_cache.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "cache/layers/bundle.h"
#include "cache/records/bucket.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

// The number of records of other shapes that `near` looks for. It is enough, because rules rarely
// reject a configuration for another shape.
constexpr std::size_t kNeighbours = 16;
// The number of nearest shapes among which it looks for them, which takes about 4 ms of reading.
constexpr std::size_t kNearest = 256;

/// Marks the directory as ours, and as one that backups may skip. Lookups do not need the marks, so
/// a failure does not matter.
void mark(const fs::path& root) {
  std::error_code error;
  const fs::path tag = root / "CACHEDIR.TAG";
  if (fs::exists(tag, error) || error) return;
  static_cast<void>(publish_file(root / "FORMAT", "kernwright cache, layout v1\n", root));
  // Written last: if it exists, both marks do.
  static_cast<void>(publish_file(
      tag,
      "Signature: 8a477f597d28d172789f06886806bc55\n"
      "# This directory holds what kernwright can make again. See https://bford.info/cachedir/\n",
      root));
}

/// Returns how well a record fits, as if it was measured, and the reason why that is not `exact`.
/// If there are several reasons, it is the most important one.
std::pair<Match, MissReason> fit(const RecordHead& head, const TieredCache::Now& now,
                                 const std::string& template_digest) {
  const RecordEnvironment& then = head.environment;
  if (template_digest.empty()) return {Match::none, MissReason::template_missing};
  if (then.template_digest != template_digest)
    return {Match::stale_code, MissReason::template_changed};
  if (!now.compiler.empty() && then.compiler != now.compiler) {
    return {Match::stale_code, MissReason::other_compiler};
  }
  // A prediction does not depend on a driver.
  const bool measured = head.grade == RecordGrade::measured;
  if (measured && !now.driver.empty() && then.driver != now.driver) {
    return {Match::recheck, MissReason::other_driver};
  }
  if (then.kernwright != now.kernwright) return {Match::recheck, MissReason::other_kernwright};
  return {Match::exact, MissReason::none};
}

/// Returns whether the record's measurements are of the code that would run. With match `seed` they
/// are of other code, which must be compiled again.
bool measured_this_code(Match fit) { return fit == Match::exact || fit == Match::recheck; }

/// Keeps the first reason other than `absent`.
void keep_first(MissReason& reason, MissReason other) {
  if (reason == MissReason::absent) reason = other;
}

struct Ranked {
  Match fit;             // the match as if it was measured
  std::size_t position;  // by layer, and within a layer newest first
  GradedRecord graded;
  double distance = 1;

  auto rank() const {
    const RecordHead& head = graded.head;
    return std::tuple(distance, head.grade, !measured_this_code(fit), head.trust, fit, position);
  }
};

std::vector<GradedRecord> in_order(std::vector<Ranked> ranked) {
  std::sort(ranked.begin(), ranked.end(),
            [](const Ranked& a, const Ranked& b) { return a.rank() < b.rank(); });
  std::vector<GradedRecord> graded;
  graded.reserve(ranked.size());
  for (Ranked& one : ranked) graded.push_back(std::move(one.graded));
  return graded;
}

/// Makes the first runner-up that `fits` the winner of a record. Returns false if none fits, or the
/// evidence cannot be read.
bool promote(RecordHead& head, const std::string& file,
             const std::function<bool(const Choice&)>& fits) {
  const Lookup<TuningRecord> record = read_record(file);
  if (!record) return false;
  std::optional<HeadWinner> winner = stand_in(*record.value, fits);
  if (!winner) return false;
  head.winner = *std::move(winner);
  return true;
}

/// Puts the pinned candidate first: a record that has it, or else a record made from the pin alone.
void put_pin_first(Answers& answers, const TieredCache::Now& now, const std::string& digest) {
  const Override& pin = *answers.decisions.pin();
  if (digest.empty()) {
    answers.defects.push_back(
        concat("the pin of ", pin.choice.id(), " is not served: there is no such template"));
    return;
  }
  const auto is_pin = [&pin](const Choice& choice) { return choice == pin.choice; };
  std::vector<GradedRecord>& records = answers.records;
  auto found = std::find_if(records.begin(), records.end(), [&](const GradedRecord& one) {
    return is_pin(one.head.winner.choice);
  });
  if (found == records.end()) {
    found = std::find_if(records.begin(), records.end(),
                         [&](GradedRecord& one) { return promote(one.head, one.file, is_pin); });
  }
  if (found != records.end()) {
    std::rotate(records.begin(), found, found + 1);
    return;
  }
  GradedRecord made;
  made.match = Match::stale_code;
  made.reason = MissReason::pinned;
  made.head.key = pin.key;
  made.head.environment = {.template_digest = digest,
                           .compiler = now.compiler,
                           .driver = now.driver,
                           .kernwright = now.kernwright};
  made.head.grade = RecordGrade::predicted;
  made.head.winner.choice = pin.choice;
  made.head.created = pin.created;
  records.insert(records.begin(), std::move(made));
}

std::vector<fs::path> all_roots(fs::path user_root, const std::vector<fs::path>& read_only_roots) {
  std::vector<fs::path> roots = {std::move(user_root)};
  roots.insert(roots.end(), read_only_roots.begin(), read_only_roots.end());
  if (fs::path bundle = installed_bundle(roots.front()); !bundle.empty()) {
    roots.push_back(std::move(bundle));
  }
  return roots;
}

}  // namespace

TieredCache::TieredCache(fs::path user_root, const std::vector<fs::path>& read_only_roots)
    : roots_(all_roots(std::move(user_root), read_only_roots)),
      records_(roots_.begin(), roots_.end()),
      artifacts_(roots_.begin(), roots_.end()) {}

Answers TieredCache::lookup(const RecordKey& key, const Now& now,
                            const TemplateDigest& template_digest) const {
  Answers answers;
  std::vector<RecordStore::Found> layers;
  layers.reserve(records_.size());
  const RecordPlace place(key);
  for (const RecordStore& store : records_) {
    RecordStore::Found& found = layers.emplace_back(store.get(place));
    if (found.runs.empty()) keep_first(answers.reason, found.reason);
    std::move(found.defects.begin(), found.defects.end(), std::back_inserter(answers.defects));
  }
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    answers.decisions.add(layer->overrides);
  }
  const auto allowed = [&answers](const Choice& choice) {
    return !answers.decisions.banned(choice.id());
  };
  std::vector<Ranked> ranked;
  for (RecordStore::Found& found : layers) {
    for (RecordRun& run : found.runs) {
      auto [match, why] =
          fit(run.head, now, template_digest(run.head.winner.choice.kernel_template));
      if (!answers.decisions.bans().empty() && !allowed(run.head.winner.choice)) {
        if (!promote(run.head, run.file, allowed)) match = Match::none;
        why = MissReason::banned;
        if (match != Match::none) match = std::max(match, Match::recheck);
      }
      if (match == Match::none) {
        keep_first(answers.reason, why);
        continue;
      }
      const Match served = run.head.grade == RecordGrade::predicted ? Match::predicted : match;
      ranked.push_back({.fit = match,
                        .position = ranked.size(),
                        .graded = {std::move(run.head), served, why, std::move(run.file)}});
    }
  }
  answers.records = in_order(std::move(ranked));
  if (const auto& pin = answers.decisions.pin()) {
    put_pin_first(answers, now, template_digest(pin->choice.kernel_template));
  }
  if (!answers.records.empty()) answers.reason = MissReason::none;
  return answers;
}

std::vector<GradedRecord> TieredCache::near(const RecordKey& key, const BoundProblem& problem,
                                            const Now& now, const TemplateDigest& template_digest,
                                            const Decisions& decisions) const {
  const BucketPattern pattern = bucket_pattern(problem);
  if (pattern.open.empty()) return {};
  RecordKey shape = key;
  shape.problem = pattern.text;
  struct Neighbour {
    double distance;
    const RecordStore* store;  ///< stores of earlier layers come first
    RecordStore::Alike alike;

    auto rank() const { return std::tie(distance, store, alike.folder); }
  };
  std::vector<Neighbour> neighbours;
  for (const RecordStore& store : records_) {
    for (RecordStore::Alike& alike : store.like(shape)) {
      if (const std::optional<double> distance = pattern.distance(alike.sizes)) {
        neighbours.push_back({*distance, &store, std::move(alike)});
      }
    }
  }
  std::sort(neighbours.begin(), neighbours.end(),
            [](const Neighbour& a, const Neighbour& b) { return a.rank() < b.rank(); });
  if (neighbours.size() > kNearest) neighbours.resize(kNearest);
  std::vector<Ranked> ranked;
  double reached = 1;
  for (const Neighbour& neighbour : neighbours) {
    // All records of one distance are read, because their grades decide between them.
    if (ranked.size() >= kNeighbours && neighbour.distance > reached) break;
    reached = neighbour.distance;
    for (RecordRun& run : neighbour.store->runs(neighbour.alike, shape)) {
      const Match match =
          fit(run.head, now, template_digest(run.head.winner.choice.kernel_template)).first;
      const bool usable = run.head.grade == RecordGrade::measured && measured_this_code(match) &&
                          run.head.key.problem != key.problem &&
                          !decisions.banned(run.head.winner.choice.id());
      if (!usable) continue;
      const Result<Problem> other = Problem::parse(run.head.key.problem);
      if (!other) continue;
      const std::optional<double> distance = bucket_distance(problem, *other);
      if (!distance) continue;
      ranked.push_back({.fit = match,
                        .position = ranked.size(),
                        .graded = {std::move(run.head), Match::bucket, MissReason::other_shape,
                                   std::move(run.file)},
                        .distance = *distance});
    }
  }
  return in_order(std::move(ranked));
}

std::vector<TieredCache::FoundFamily> TieredCache::families(const RecordKey& like) const {
  std::map<std::string, RecordStore::FamilyRun> best;
  for (const RecordStore& store : records_) {
    for (RecordStore::FamilyRun& run : store.families(like)) {
      const auto [at, added] = best.try_emplace(run.head.key.problem, run);
      if (!added && run.head.trust < at->second.head.trust) at->second = std::move(run);
    }
  }
  std::vector<FoundFamily> found;
  for (auto& [problem, run] : best) {
    Decisions of_family = decisions(run.head.key);
    found.push_back({std::move(run.head), run.file.native(), std::move(of_family)});
  }
  return found;
}

Decisions TieredCache::decisions(const RecordKey& key) const {
  Decisions decisions;
  const RecordPlace place(key);
  for (auto store = records_.rbegin(); store != records_.rend(); ++store) {
    decisions.add(store->get(place).overrides);
  }
  return decisions;
}

GradedRecord TieredCache::graded(const FamilyHead& family, const FamilyKernel& kernel,
                                 const Now& now, const TemplateDigest& template_digest) {
  GradedRecord graded{.head = {.key = family.key,
                               .environment = family.environment,
                               .grade = RecordGrade::measured,
                               .trust = family.trust,
                               .winner = {.choice = kernel.choice, .artifact = kernel.artifact},
                               .created = family.created,
                               .artifacts = {}}};
  graded.head.environment.template_digest = kernel.template_digest;
  std::tie(graded.match, graded.reason) =
      fit(graded.head, now, template_digest(kernel.choice.kernel_template));
  if (graded.match == Match::exact) graded.match = Match::family;
  return graded;
}

Lookup<CompiledKernel> TieredCache::artifact(std::string_view digest_hex) const {
  Lookup<CompiledKernel> first;
  for (const ArtifactStore& store : artifacts_) {
    Lookup<CompiledKernel> found = store.get(digest_hex);
    if (found) return found;
    if (first.reason == MissReason::absent) first = std::move(found);
  }
  return first;
}

Result<void> TieredCache::put_artifact(std::string_view digest_hex,
                                       const CompiledKernel& kernel) const {
  mark(root());
  return artifacts().put(digest_hex, kernel);
}

Result<fs::path> TieredCache::put_record(const TuningRecord& record,
                                         const TrialTable* trials) const {
  mark(root());
  return records().put(record, trials);
}

Result<fs::path> TieredCache::replace_record(const std::string& file,
                                             const TuningRecord& record) const {
  mark(root());
  return records().replace(file, record);
}

fs::path TieredCache::log(const RecordKey& key) const {
  constexpr std::size_t kDigits = 16;
  return logs() / operation_of(key.problem) /
         concat(digest_of(key.text()).hex().substr(0, kDigits), ".jsonl");
}

Result<fs::path> TieredCache::put_family(const FamilyRecord& family) const {
  mark(root());
  return records().put(family);
}

Result<fs::path> TieredCache::put_override(const Override& override) const {
  mark(root());
  return records().put(override);
}

}  // namespace kernwright
