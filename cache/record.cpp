#include "cache/record.h"

#include <utility>

#include "cache/json_fields.h"
#include "support/text.h"

namespace kernwright {
namespace {

using Json = FieldReader::Json;

Json json_of(const Slowdown& slowdown) {
  return {{"estimate", slowdown.estimate}, {"low", slowdown.low}, {"high", slowdown.high}};
}

Json json_of(const RankedConfiguration& ranked) {
  return {{"template", ranked.kernel_template},
          {"configuration", json_of(ranked.configuration)},
          {"artifact", ranked.artifact},
          {"samples_us", json_numbers(ranked.measurement.samples_us)},
          {"sm_mhz", json_numbers(ranked.measurement.sm_mhz)},
          {"predicted_us", ranked.predicted_us},
          {"resources", json_of(ranked.resources)},
          {"smem_bytes", ranked.smem_bytes},
          {"workspace_bytes", ranked.workspace_bytes},
          {"launch_gap_us", ranked.launch_gap_us},
          {"slowdown", json_of(ranked.slowdown)},
          {"is_default", ranked.is_default},
          {"is_incumbent", ranked.is_incumbent},
          {"tied", ranked.tied},
          {"deterministic", ranked.deterministic},
          {"warned", ranked.warned},
          {"in_blocks", ranked.in_blocks}};
}

Json json_of(const CheckReport& check) {
  return {{"max_error", check.max_error},
          {"mismatches", check.mismatches},
          {"elements", check.elements},
          {"first_mismatch", check.first_mismatch},
          {"exact", check.exact},
          {"guarded", check.guarded},
          {"unmapped", check.unmapped},
          {"repeats", check.repeats},
          {"deterministic", check.deterministic},
          {"after_timing", check.after_timing}};
}

Json json_of(const Audit& audit) {
  Json rows = Json::array();
  for (const AuditRow& row : audit.rows) {
    rows.push_back({{"check", row.check}, {"trust", to_string(row.trust)}, {"detail", row.detail}});
  }
  return rows;
}

Json json_of(const FinalRounds& rounds) {
  return {{"sm_reference_us", json_numbers(rounds.sm_reference_us)},
          {"dram_reference_us", json_numbers(rounds.dram_reference_us)},
          {"dropped", rounds.dropped},
          {"block_rounds", rounds.block_rounds}};
}

Json json_of(const SearchSummary& search) {
  return {{"strategy", search.strategy},
          {"seed", search.seed},
          {"rejected", search.rejected},
          {"compiled", search.compiled},
          {"failed", search.failed},
          {"raced", search.raced},
          {"seeds", search.seeds},
          {"stop_reason", search.stop_reason},
          {"regret_estimate", search.regret_estimate}};
}

void read_key(FieldReader& fields, RecordKey& key) {
  fields.read("problem", key.problem);
  fields.read("target", key.target);
  fields.read("sku", key.sku);
  std::string text;
  fields.read("policy", text);
  if (const auto policy = parse_policy(text)) {
    key.policy = *policy;
  } else {
    fields.fail("policy", concat('"', text, "\" is no measure policy"));
  }
}

void read_environment(FieldReader& fields, RecordEnvironment& environment) {
  fields.read("template_digest", environment.template_digest);
  fields.read("compiler", environment.compiler);
  fields.read("driver", environment.driver);
  fields.read("kernwright", environment.kernwright);
}

void read_grade(FieldReader& fields, RecordGrade& grade) {
  std::string text;
  fields.read("grade", text);
  if (text == to_string(RecordGrade::predicted)) {
    grade = RecordGrade::predicted;
  } else if (text != to_string(RecordGrade::measured)) {
    fields.fail("grade", concat('"', text, "\" is neither measured nor predicted"));
  }
}

/// The value of a text field through `parse`, which knows the spellings. Older records lack it.
template <typename Enum, typename Parse>
void read_named(FieldReader& fields, std::string_view name, Enum& out, const Parse& parse) {
  std::string text(to_string(out));
  fields.read_newer(name, text);
  if (const auto value = parse(text)) {
    out = *value;
  } else {
    fields.fail(name, concat('"', text, "\" is none of its values"));
  }
}

void read_slowdown(FieldReader& fields, Slowdown& slowdown) {
  fields.read("estimate", slowdown.estimate);
  fields.read("low", slowdown.low);
  fields.read("high", slowdown.high);
}

void read_ranked(FieldReader& fields, RankedConfiguration& ranked) {
  fields.read("template", ranked.kernel_template);
  fields.read("configuration", ranked.configuration);
  fields.read("artifact", ranked.artifact);
  fields.read("samples_us", ranked.measurement.samples_us);
  fields.read_newer("sm_mhz", ranked.measurement.sm_mhz);
  fields.read("predicted_us", ranked.predicted_us);
  fields.read("resources", ranked.resources);
  fields.read_newer("smem_bytes", ranked.smem_bytes);
  fields.read_newer("workspace_bytes", ranked.workspace_bytes);
  fields.read_newer("launch_gap_us", ranked.launch_gap_us);
  if (fields.contains("slowdown")) {
    fields.object("slowdown", [&](FieldReader& nested) { read_slowdown(nested, ranked.slowdown); });
  }
  fields.read_newer("is_default", ranked.is_default);
  fields.read_newer("is_incumbent", ranked.is_incumbent);
  fields.read_newer("tied", ranked.tied);
  fields.read_newer("deterministic", ranked.deterministic);
  fields.read_newer("warned", ranked.warned);
  fields.read_newer("in_blocks", ranked.in_blocks);
}

void read_check(FieldReader& fields, CheckReport& check) {
  fields.read("max_error", check.max_error);
  fields.read("mismatches", check.mismatches);
  fields.read("elements", check.elements);
  fields.read("first_mismatch", check.first_mismatch);
  fields.read_newer("exact", check.exact);
  fields.read_newer("guarded", check.guarded);
  fields.read_newer("unmapped", check.unmapped);
  fields.read_newer("repeats", check.repeats);
  fields.read_newer("deterministic", check.deterministic);
  fields.read_newer("after_timing", check.after_timing);
}

void read_audit_row(FieldReader& fields, AuditRow& row) {
  fields.read("check", row.check);
  fields.read("detail", row.detail);
  if (!fields.contains("trust")) fields.fail("trust", "missing");
  read_named(fields, "trust", row.trust, parse_trust);
}

void read_rounds(FieldReader& fields, FinalRounds& rounds) {
  fields.read("sm_reference_us", rounds.sm_reference_us);
  fields.read("dram_reference_us", rounds.dram_reference_us);
  fields.read("dropped", rounds.dropped);
  fields.read("block_rounds", rounds.block_rounds);
}

void read_search(FieldReader& fields, SearchSummary& search) {
  fields.read("strategy", search.strategy);
  fields.read("seed", search.seed);
  fields.read("rejected", search.rejected);
  fields.read("compiled", search.compiled);
  fields.read("failed", search.failed);
  fields.read("raced", search.raced);
  fields.read("seeds", search.seeds);
  fields.read("stop_reason", search.stop_reason);
  fields.read("regret_estimate", search.regret_estimate);
}

/// How the choice was made, which records of version 0.1 do not say.
void read_evidence(FieldReader& fields, TuningRecord& record) {
  read_named(fields, "trust", record.trust, parse_trust);
  if (fields.contains("audit")) {
    fields.each_object("audit", [&](FieldReader& nested) {
      read_audit_row(nested, record.audit.rows.emplace_back());
    });
  }
  read_named(fields, "verdict", record.verdict, parse_verdict);
  if (fields.contains("rounds")) {
    fields.object("rounds", [&](FieldReader& nested) { read_rounds(nested, record.rounds); });
  }
  if (fields.contains("search")) {
    fields.object("search", [&](FieldReader& nested) { read_search(nested, record.search); });
  }
  fields.read_newer("settle_ms", record.settle_ms);
  fields.read_newer("idle_seconds", record.idle_seconds);
  fields.read_newer("longest_idle_ms", record.longest_idle_ms);
}

}  // namespace

std::string_view to_string(RecordGrade grade) {
  return grade == RecordGrade::measured ? "measured" : "predicted";
}

std::string RecordKey::text() const {
  return concat(problem, "; target=", target, " sku=", sku, ' ', policy.text());
}

FinalTimes final_times(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  FinalTimes times{.in_turn = ranked.measurement, .alone = {}};
  const auto blocks = static_cast<std::size_t>(rounds.block_rounds);
  if (!ranked.in_blocks || blocks > ranked.measurement.samples_us.size()) return times;
  const auto split = [blocks](std::vector<double>& from, std::vector<double>& to) {
    if (from.size() < blocks) return;
    to.assign(from.end() - static_cast<std::ptrdiff_t>(blocks), from.end());
    from.resize(from.size() - blocks);
  };
  split(times.in_turn.samples_us, times.alone.samples_us);
  split(times.in_turn.sm_mhz, times.alone.sm_mhz);
  return times;
}

std::string to_json(const TuningRecord& record) {
  Json runners_up = Json::array();
  for (const RankedConfiguration& ranked : record.runners_up) runners_up.push_back(json_of(ranked));
  const Json json = {{"key",
                      {{"problem", record.key.problem},
                       {"target", record.key.target},
                       {"sku", record.key.sku},
                       {"policy", record.key.policy.text()}}},
                     {"environment",
                      {{"template_digest", record.environment.template_digest},
                       {"compiler", record.environment.compiler},
                       {"driver", record.environment.driver},
                       {"kernwright", record.environment.kernwright}}},
                     {"grade", to_string(record.grade)},
                     {"winner", json_of(record.winner)},
                     {"runners_up", std::move(runners_up)},
                     {"baseline", record.baseline ? json_of(*record.baseline) : Json()},
                     {"check", json_of(record.check)},
                     {"trust", to_string(record.trust)},
                     {"audit", json_of(record.audit)},
                     {"verdict", to_string(record.verdict)},
                     {"rounds", json_of(record.rounds)},
                     {"search", json_of(record.search)},
                     {"settle_ms", record.settle_ms},
                     {"idle_seconds", record.idle_seconds},
                     {"longest_idle_ms", record.longest_idle_ms},
                     {"candidates", record.candidates},
                     {"measured", record.measured},
                     {"device_name", record.device_name},
                     {"device_uuid", record.device_uuid},
                     {"roofline_us", record.roofline_us},
                     {"wall_seconds", record.wall_seconds},
                     {"created", record.created}};
  return dump(json);
}

Result<TuningRecord> parse_record(std::string_view json) {
  TuningRecord record;
  const Result<void> parsed = parse_fields(json, "record", [&](FieldReader& fields) {
    fields.object("key", [&](FieldReader& nested) { read_key(nested, record.key); });
    fields.object("environment",
                  [&](FieldReader& nested) { read_environment(nested, record.environment); });
    read_grade(fields, record.grade);
    fields.object("winner", [&](FieldReader& nested) { read_ranked(nested, record.winner); });
    fields.each_object("runners_up", [&](FieldReader& nested) {
      read_ranked(nested, record.runners_up.emplace_back());
    });
    if (fields.has("baseline")) {
      fields.object("baseline",
                    [&](FieldReader& nested) { read_ranked(nested, record.baseline.emplace()); });
    }
    fields.object("check", [&](FieldReader& nested) { read_check(nested, record.check); });
    read_evidence(fields, record);
    fields.read("candidates", record.candidates);
    fields.read("measured", record.measured);
    fields.read("device_name", record.device_name);
    fields.read("device_uuid", record.device_uuid);
    fields.read("roofline_us", record.roofline_us);
    fields.read("wall_seconds", record.wall_seconds);
    fields.read("created", record.created);
  });
  if (!parsed) return parsed.error();
  return record;
}

}  // namespace kernwright
