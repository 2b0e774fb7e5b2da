// The actions of `kernwright cache` that change the cache.

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <vector>

#include "cache/layers/compact.h"
#include "cache/layers/merge.h"
#include "cache/layers/tiered_cache.h"
#include "cli/cache/cache_actions.h"
#include "cli/output.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"

namespace kernwright::cli {
namespace {

Status print_removed(const CacheFlags& flags, const Result<Removed>& removed) {
  if (!removed) return report(removed.error());
  if (flags.json) {
    print_json(Json{{"root", flags.root().string()},
                    {"removed_files", removed->files},
                    {"removed_bytes", removed->bytes}});
  } else {
    print(concat(counted(removed->files, "file"), " removed, ", counted(removed->bytes, "byte")));
  }
  return Status::ok;
}

Json winner_json(const HeadWinner& winner) {
  return {{"template", winner.choice.kernel_template},
          {"configuration", winner.choice.configuration.text()},
          {"measured_us", winner.measured_us}};
}

/// Parses "A=1 B=-2".
Result<ParameterValues> parse_parameters(std::string_view text) {
  ParameterValues values;
  for (std::string_view word : split(text, ' ')) {
    word = trim(word);
    if (word.empty()) continue;
    const std::size_t equals = std::min(word.find('='), word.size() - 1);
    std::int64_t value = 0;
    const char* end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + equals + 1, end, value);
    if (word[equals] != '=' || read.ec != std::errc() || read.ptr != end) {
      return Error{ErrorCode::invalid_argument,
                   concat("--configuration has \"", word, "\", not NAME=INTEGER")};
    }
    values.emplace_back(word.substr(0, equals), value);
  }
  return values;
}

/// The problem or the family that is decided about.
struct Subject {
  BoundProblem problem;  ///< of a family the last
  std::optional<RangedProblem> family;
  RecordKey key;
};

Result<Subject> subject_of(const ServiceCore& service, const Problem& problem) {
  if (has_range(problem)) {
    KW_ASSIGN(RangedProblem family, service.site().bind_family(problem));
    RecordKey key = service.site().key(family.text());
    return Subject{family.last(), std::move(family), std::move(key)};
  }
  KW_ASSIGN(BoundProblem bound, service.bind(problem));
  RecordKey key = service.site().key(bound);
  return Subject{std::move(bound), std::nullopt, std::move(key)};
}

/// Returns the candidate that --template and --configuration name; nullopt if they are not given.
Result<std::optional<Choice>> named_candidate(const CacheFlags& flags, const ServiceCore& service,
                                              const Subject& subject) {
  const std::string& name = flags.kernel_template.getValue();
  if (name.empty()) {
    if (flags.configuration.empty()) return std::optional<Choice>();
    return Error{ErrorCode::invalid_argument,
                 "--configuration is of a template, and no --template is given"};
  }
  const Site& site = service.site();
  KW_ASSIGN(const ParameterValues parameters, parse_parameters(flags.configuration.getValue()));
  KW_ASSIGN(const Candidate candidate, subject.family
                                           ? site.candidate(*subject.family, name, parameters)
                                           : site.candidate(subject.problem, name, parameters));
  return std::optional(Choice{name, candidate.configuration});
}

/// Returns the candidate to pin or to ban: the named one, or the one that is served now.
Result<std::vector<Choice>> to_decide(const CacheFlags& flags, const ServiceCore& service,
                                      const Subject& subject) {
  KW_ASSIGN(std::optional<Choice> named, named_candidate(flags, service, subject));
  if (named) return std::vector{*std::move(named)};
  if (subject.family) {
    return Error{ErrorCode::invalid_argument,
                 concat(subject.key.problem,
                        " has several kernels: name the candidate with "
                        "--template and --configuration")};
  }
  const BoundProblem& problem = subject.problem;
  if (const auto served = service.answers().first(problem).record) {
    return std::vector{service.answers().as_decided(served->head.winner.choice)};
  }
  return Error{ErrorCode::invalid_argument,
               concat("no record for ", problem.text(), " (",
                      to_string(service.answers().look_up(problem).reason),
                      "): name the candidate with --template and --configuration")};
}

/// Returns the decisions to lift: those about the named candidate, or all decisions about the
/// problem.
Result<std::vector<Choice>> to_lift(const CacheFlags& flags, const ServiceCore& service,
                                    const Subject& subject) {
  KW_ASSIGN(const std::optional<Choice> named, named_candidate(flags, service, subject));
  const Decisions decisions = service.cache().decisions(subject.key);
  std::vector<Choice> all;
  const auto add = [&](const Override& made) {
    if (!named || *named == made.choice) all.push_back(made.choice);
  };
  if (decisions.pin()) add(*decisions.pin());
  for (const auto& [id, ban] : decisions.bans()) add(ban);
  if (!all.empty()) return all;
  return Error{ErrorCode::not_found,
               named
                   ? concat(named->id(), " is neither pinned nor banned for ", subject.key.problem)
                   : concat("nothing is pinned or banned for ", subject.key.problem)};
}

}  // namespace

Status compact_cache(const CacheFlags& flags) {
  return print_removed(flags, compact(RecordStore(flags.root()), utc_now()));
}

Status prune_cache(const CacheFlags& flags) {
  if (!(flags.max_gib >= 0) || !(flags.max_days >= 0)) {
    return report({ErrorCode::invalid_argument,
                   concat("--max-gib is ", flags.max_gib.getValue(), " and --max-days ",
                          flags.max_days.getValue(), "; they must be 0 or more")});
  }
  constexpr double kGib = 1024.0 * 1024 * 1024;
  constexpr double kMostBytes = 0x1p62;  // as good as no limit, and an integer has room for it
  const PruneLimits limits{
      .bytes = static_cast<std::int64_t>(std::min(flags.max_gib * kGib, kMostBytes)),
      .days = flags.max_days};
  return print_removed(flags, prune(TieredCache(flags.root()), limits));
}

Status merge_caches(const CacheFlags& flags) {
  if (flags.words.size() < 2) {
    return report({ErrorCode::invalid_argument, "no directory given to merge from: merge DIR..."});
  }
  const TieredCache into(flags.root());
  Json rows = Json::array();
  bool defects = false;
  for (std::size_t i = 1; i < flags.words.size(); ++i) {
    const std::string& from = flags.words[i];
    std::error_code error;
    if (!std::filesystem::is_directory(from, error)) {
      return report({ErrorCode::invalid_argument, concat(from, " is no directory")});
    }
    const Result<MergeReport> merged = merge(into, from);
    if (!merged) return report(merged.error());
    defects = defects || !merged->defects.empty();
    for (const std::string& defect : merged->defects) report_warning("left out: " + defect);
    Json differ = Json::array();
    for (const Disagreement& one : merged->disagreements) {
      differ.push_back({{"key", one.key},
                        {"ours", winner_json(one.ours)},
                        {"theirs", winner_json(one.theirs)},
                        {"ratio", one.ratio}});
      if (!flags.json) {
        print(concat(one.key, ": the winners differ by ", 100 * (one.ratio - 1), " %"));
        print(concat("  ours   ", format_us(one.ours.measured_us), " ", one.ours.choice.id()));
        print(concat("  theirs ", format_us(one.theirs.measured_us), " ", one.theirs.choice.id()));
      }
    }
    if (!flags.json) {
      print(concat(from, ": ", counted_records(merged->records, merged->families), ", ",
                   counted(merged->artifacts, "artifact"), ", ",
                   counted(merged->overrides, "decision"), " taken over, ",
                   counted(merged->disagreements.size(), "problem"), " whose winners differ"));
    }
    rows.push_back({{"from", from},
                    {"records", merged->records},
                    {"families", merged->families},
                    {"artifacts", merged->artifacts},
                    {"overrides", merged->overrides},
                    {"disagreements", std::move(differ)},
                    {"defects", merged->defects}});
  }
  if (flags.json) print_json(Json{{"root", flags.root().string()}, {"merged", rows}});
  return defects ? Status::failed : Status::ok;
}

Status decide(const CacheFlags& flags) {
  std::string text;
  for (std::size_t i = 1; i < flags.words.size(); ++i) text += flags.words[i] + " ";
  const Result<Problem> problem = Problem::parse(text);
  if (!problem) return report(problem.error());
  const Result<std::shared_ptr<ServiceCore>> service = flags.service.open();
  if (!service) return report(service.error());
  const Result<Subject> subject = subject_of(**service, *problem);
  if (!subject) return report(subject.error());
  const OverrideAction action = *parse_as<OverrideAction>(flags.words.front());
  const auto decided = action == OverrideAction::lift ? to_lift(flags, **service, *subject)
                                                      : to_decide(flags, **service, *subject);
  if (!decided) return report(decided.error());
  if (subject->family && action != OverrideAction::lift) {
    const auto found = (*service)->answers().record_of(*subject->family);
    if (!found || found->head.key != subject->key) {
      report_warning(concat("no record of ", subject->key.problem,
                            ", so this has no effect before that range is tuned"));
    }
  }
  Json rows = Json::array();
  for (const Choice& one : *decided) {
    const Override made{.key = subject->key,
                        .action = action,
                        .choice = one,
                        .why = flags.why,
                        .created = utc_now()};
    if (const auto put = (*service)->cache().put_override(made); !put) return report(put.error());
    rows.push_back(parse_value(to_json(made)));
    if (!flags.json)
      print(concat(to_string(made.action), " ", made.choice.id(), " for ", made.key.text()));
  }
  if (flags.json)
    print_json(action == OverrideAction::lift ? Json{{"lifted", rows}} : rows.front());
  return Status::ok;
}

}  // namespace kernwright::cli
