#include "cache/record.h"

#include <utility>

#include "cache/json_fields.h"
#include "support/text.h"

namespace kernwright {
namespace {

using Json = FieldReader::Json;

Json json_of(const RankedConfiguration& ranked) {
  return {{"template", ranked.kernel_template},  {"configuration", json_of(ranked.configuration)},
          {"artifact", ranked.artifact},         {"samples_us", ranked.measurement.samples_us},
          {"predicted_us", ranked.predicted_us}, {"resources", json_of(ranked.resources)}};
}

Json json_of(const CheckReport& check) {
  return {{"max_error", check.max_error},
          {"mismatches", check.mismatches},
          {"elements", check.elements},
          {"first_mismatch", check.first_mismatch}};
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

void read_ranked(FieldReader& fields, RankedConfiguration& ranked) {
  fields.read("template", ranked.kernel_template);
  fields.read("configuration", ranked.configuration);
  fields.read("artifact", ranked.artifact);
  fields.read("samples_us", ranked.measurement.samples_us);
  fields.read("predicted_us", ranked.predicted_us);
  fields.read("resources", ranked.resources);
}

void read_check(FieldReader& fields, CheckReport& check) {
  fields.read("max_error", check.max_error);
  fields.read("mismatches", check.mismatches);
  fields.read("elements", check.elements);
  fields.read("first_mismatch", check.first_mismatch);
}

}  // namespace

std::string_view to_string(RecordGrade grade) {
  return grade == RecordGrade::measured ? "measured" : "predicted";
}

std::string RecordKey::text() const {
  return concat(problem, "; target=", target, " sku=", sku, ' ', policy.text());
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
