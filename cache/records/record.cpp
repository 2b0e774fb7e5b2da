#include "cache/records/record.h"

#include <utility>

#include "cache/fields/counter_fields.h"
#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

void write_ranked(FieldWriter& json, const RankedConfiguration& ranked) {
  json.write("template", ranked.choice.kernel_template);
  json.write("configuration", ranked.choice.configuration);
  json.write("artifact", ranked.artifact);
  json.write("samples_us", ranked.measurement.samples_us);
  json.write("sm_mhz", ranked.measurement.sm_mhz);
  json.write("predicted_us", ranked.predicted_us);
  json.write("resources", ranked.traits.resources);
  json.write("smem_bytes", ranked.traits.smem_bytes);
  json.write("workspace_bytes", ranked.traits.workspace_bytes);
  json.write("launch_gap_us", ranked.launch_gap_us);
  json.object("slowdown", [&] {
    json.write("estimate", ranked.slowdown.estimate);
    json.write("low", ranked.slowdown.low);
    json.write("high", ranked.slowdown.high);
  });
  json.write("is_default", ranked.traits.is_default);
  json.write("is_predicted", ranked.traits.is_predicted);
  json.write("is_incumbent", ranked.traits.is_incumbent);
  json.write("tied", ranked.tied);
  json.write("deterministic", ranked.traits.deterministic);
  json.write("warned", ranked.traits.warned);
  json.write("in_blocks", ranked.in_blocks);
}

void write_check(FieldWriter& json, const CheckReport& check) {
  json.write("max_error", check.max_error);
  json.write("mismatches", check.mismatches);
  json.write("elements", check.elements);
  json.write("first_mismatch", check.first_mismatch);
  json.write("exact", check.exact);
  json.write("guarded", check.guarded);
  json.write("unmapped", check.unmapped);
  json.write("repeats", check.repeats);
  json.write("deterministic", check.deterministic);
  json.write("after_timing", check.after_timing);
}

void write_rounds(FieldWriter& json, const FinalRounds& rounds) {
  json.write("sm_reference_us", rounds.sm_probe_us);
  json.write("dram_reference_us", rounds.dram_probe_us);
  json.write("dropped", rounds.dropped);
  json.write("block_rounds", rounds.block_rounds);
}

void write_launch_paths(FieldWriter& json, const LaunchTimes& paths) {
  json.each_object("launch_paths", paths.times, [&](const PathTime& time) {
    json.write("path", to_string(time.path));
    json.write("host_us", time.host_us);
    json.write("period_us", time.period_us);
  });
  if (paths.best) {
    json.write("best_path", to_string(*paths.best));
  } else {
    json.write("best_path", nullptr);
  }
}

void write_search(FieldWriter& json, const SearchSummary& search) {
  json.write("strategy", search.strategy);
  json.write("seed", search.random_seed);
  json.write("rejected", search.rejected);
  json.write("compiled", search.compiled);
  json.write("failed", search.failed);
  json.write("raced", search.raced);
  json.write("seeds", search.warm_starts);
  json.write("stop_reason", search.stop_reason);
  json.write("regret_estimate", search.regret_estimate);
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

/// Reads an enumerator from a text field by `parse`. Older records do not have the field.
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
  fields.read("template", ranked.choice.kernel_template);
  fields.read("configuration", ranked.choice.configuration);
  fields.read("artifact", ranked.artifact);
  fields.read("samples_us", ranked.measurement.samples_us);
  fields.read_newer("sm_mhz", ranked.measurement.sm_mhz);
  fields.read("predicted_us", ranked.predicted_us);
  fields.read("resources", ranked.traits.resources);
  fields.read_newer("smem_bytes", ranked.traits.smem_bytes);
  fields.read_newer("workspace_bytes", ranked.traits.workspace_bytes);
  fields.read_newer("launch_gap_us", ranked.launch_gap_us);
  if (fields.contains("slowdown")) {
    fields.object("slowdown", [&](FieldReader& nested) { read_slowdown(nested, ranked.slowdown); });
  }
  fields.read_newer("is_default", ranked.traits.is_default);
  fields.read_newer("is_predicted", ranked.traits.is_predicted);
  fields.read_newer("is_incumbent", ranked.traits.is_incumbent);
  fields.read_newer("tied", ranked.tied);
  fields.read_newer("deterministic", ranked.traits.deterministic);
  fields.read_newer("warned", ranked.traits.warned);
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
  fields.read("sm_reference_us", rounds.sm_probe_us);
  fields.read("dram_reference_us", rounds.dram_probe_us);
  fields.read("dropped", rounds.dropped);
  fields.read("block_rounds", rounds.block_rounds);
}

/// Reads a path by its name, which must be there.
KernelPath read_path(FieldReader& fields, std::string_view name) {
  std::string text;
  fields.read(name, text);
  const std::optional<KernelPath> path = parse_kernel_path(text);
  if (!path) fields.fail(name, concat('"', text, "\" is no launch path"));
  return path.value_or(KernelPath::stream);
}

void read_launch_paths(FieldReader& fields, LaunchTimes& paths) {
  if (!fields.contains("launch_paths")) return;
  fields.each_object("launch_paths", [&](FieldReader& nested) {
    PathTime& time = paths.times.emplace_back();
    time.path = read_path(nested, "path");
    nested.read("host_us", time.host_us);
    nested.read("period_us", time.period_us);
  });
  if (fields.has("best_path")) paths.best = read_path(fields, "best_path");
}

void read_search(FieldReader& fields, SearchSummary& search) {
  fields.read("strategy", search.strategy);
  fields.read("seed", search.random_seed);
  fields.read("rejected", search.rejected);
  fields.read("compiled", search.compiled);
  fields.read("failed", search.failed);
  fields.read("raced", search.raced);
  fields.read("seeds", search.warm_starts);
  fields.read("stop_reason", search.stop_reason);
  fields.read("regret_estimate", search.regret_estimate);
}

/// Reads how the choice was made. Records of version 0.1 do not have these fields.
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
  read_launch_paths(fields, record.launch_paths);
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

std::string_view operation_of(std::string_view problem) {
  return problem.substr(0, problem.find(' '));
}

std::string RecordKey::text() const {
  return problem + "; target=" + target + " sku=" + sku + ' ' + policy.text();
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
  FieldWriter json;
  json.object("key", [&] {
    json.write("problem", record.key.problem);
    json.write("target", record.key.target);
    json.write("sku", record.key.sku);
    json.write("policy", record.key.policy.text());
  });
  json.object("environment", [&] {
    json.write("template_digest", record.environment.template_digest);
    json.write("compiler", record.environment.compiler);
    json.write("driver", record.environment.driver);
    json.write("kernwright", record.environment.kernwright);
  });
  json.write("grade", to_string(record.grade));
  json.object("winner", [&] { write_ranked(json, record.winner); });
  json.each_object("runners_up", record.runners_up,
                   [&](const RankedConfiguration& ranked) { write_ranked(json, ranked); });
  if (record.baseline) {
    json.object("baseline", [&] { write_ranked(json, *record.baseline); });
  } else {
    json.write("baseline", nullptr);
  }
  json.object("check", [&] { write_check(json, record.check); });
  json.write("trust", to_string(record.trust));
  json.each_object("audit", record.audit.rows, [&](const AuditRow& row) {
    json.write("check", row.check);
    json.write("trust", to_string(row.trust));
    json.write("detail", row.detail);
  });
  json.write("verdict", to_string(record.verdict));
  json.object("rounds", [&] { write_rounds(json, record.rounds); });
  write_launch_paths(json, record.launch_paths);
  json.object("search", [&] { write_search(json, record.search); });
  json.write("settle_ms", record.settle_ms);
  json.write("idle_seconds", record.idle_seconds);
  json.write("longest_idle_ms", record.longest_idle_ms);
  json.write("candidates", record.candidates);
  json.write("measured", record.measured);
  json.write("device_name", record.device_name);
  json.write("device_uuid", record.device_uuid);
  json.write("roofline_us", record.roofline_us);
  json.write("wall_seconds", record.wall_seconds);
  json.write("created", record.created);
  if (!record.counters.empty()) write_counters(json, record.counters);
  return json.text();
}

Result<TuningRecord> parse_record(std::string_view json) {
  TuningRecord record;
  KW_TRY(parse_fields(json, "record", [&](FieldReader& fields) {
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
    if (fields.contains("counters")) read_counters(fields, record.counters);
  }));
  return record;
}

}  // namespace kernwright
