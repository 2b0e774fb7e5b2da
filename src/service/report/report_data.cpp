#include "service/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "cache/fields/field_writer.h"
#include "cache/fields/tree_writer.h"
#include "cache/records/record_view.h"
#include "model/candidate/device_profile.h"
#include "service/report/comparison.h"
#include "service/report/explained_spread.h"
#include "service/report/family_report.h"
#include "service/report/race_picture.h"
#include "service/report/record_words.h"
#include "service/report/report_signs.h"
#include "service/report/sweep_report.h"
#include "support/json.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/utc.h"
#include "support/version.h"
#include "tuner/cost/cost_model.h"
#include "tuner/finals/decision.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDigits = 5;
constexpr int kFewDigits = 4;  // for values that are less sure than a median

double rounded(double value, int digits = kDigits) { return kernwright::rounded(value, digits); }

Json rounded(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(rounded(value));
  return json;
}

/// Rounds a share such as the roofline's to a tenth of a percent.
double share(double value) { return std::round(value * 1e4) / 1e4; }

/// Returns [estimate, low, high] as logarithms of ratios.
Json slowdown_json(const Slowdown& slowdown) {
  return Json::array({rounded(slowdown.estimate, kFewDigits), rounded(slowdown.low, kFewDigits),
                      rounded(slowdown.high, kFewDigits)});
}

Json finalist_json(const Finalist& finalist, const FinalRounds& rounds) {
  const RankedConfiguration& ranked = *finalist.ranked;
  const FinalTimes times = final_times(ranked, rounds);
  Json json = {{"role", finalist.role},
               {"differs", finalist.differs},
               {"template", ranked.choice.kernel_template},
               {"configuration", tree_of(ranked.choice.configuration)},
               {"predicted_us", rounded(ranked.predicted_us, kFewDigits)},
               {"slowdown", slowdown_json(ranked.slowdown)},
               {"registers", ranked.traits.resources.registers}};
  const auto unless_zero = [&json](const char* name, std::int64_t value) {
    if (value != 0) json[name] = value;
  };
  unless_zero("spill_bytes", ranked.traits.resources.spill_bytes());
  unless_zero("smem_bytes", ranked.traits.smem_bytes);
  unless_zero("workspace_bytes", ranked.traits.workspace_bytes);
  if (!times.in_turn.samples_us.empty()) {
    json["us"] = rounded(times.in_turn.median_us());
    json["mad_us"] = rounded(times.in_turn.mad_us(), 3);
    json["rounds"] = times.in_turn.samples_us.size();
  }
  if (!times.alone.samples_us.empty()) json["alone_us"] = rounded(times.alone.median_us());
  if (ranked.launch_gap_us > 0) json["launch_gap_us"] = rounded(ranked.launch_gap_us, 3);
  if (ranked.tied) json["tied"] = true;
  if (finalist.is_default) json["default"] = true;
  if (ranked.traits.is_predicted) json["predicted"] = true;
  if (ranked.traits.is_incumbent) json["incumbent"] = true;
  if (!ranked.traits.deterministic) json["deterministic"] = false;
  return json;
}

/// Returns the medians of groups of `group` successive values.
std::vector<double> thinned(const std::vector<double>& values, std::size_t group) {
  if (group <= 1) return values;
  std::vector<double> medians;
  for (std::size_t i = 0; i < values.size(); i += group) {
    const std::size_t end = std::min(values.size(), i + group);
    medians.push_back(median({values.begin() + static_cast<std::ptrdiff_t>(i),
                              values.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
  return medians;
}

/// Returns the winner's samples with their clocks.
Json samples_json(const TuningRecord& record, bool whole) {
  const Measurement& all = record.winner.measurement;
  const std::size_t count = all.samples_us.size();
  const std::size_t group = whole ? 1 : (count + kFewSamples - 1) / kFewSamples;
  Json json = {{"us", rounded(thinned(all.samples_us, group))}};
  std::vector<double> mhz = thinned(all.sm_mhz, group);
  for (double& value : mhz) value = std::round(value);
  json["sm_mhz"] = mhz;
  std::set<int> dropped;
  for (const int round : record.rounds.dropped) {
    dropped.insert(round / static_cast<int>(std::max<std::size_t>(group, 1)));
  }
  json["dropped"] = dropped;
  if (group > 1) json["each_of"] = group;
  if (record.winner.in_blocks) json["in_blocks"] = record.rounds.block_rounds;
  return json;
}

/// Returns the hardware counters of a record, as its own text has them.
Json counters_json(const TuningRecord& record) {
  FieldWriter json;
  json.field("counters", record.counters);
  return parse_value(json.text())["counters"];
}

Json trials_json(const ReportedRecord& reported) {
  if (!reported.trials) return Json{{"missing", reported.no_trials}};
  Json json = parse_value(to_json(*reported.trials));
  Json explained = Json::array();
  for (const ExplainedSpread& one :
       explained_spread(*reported.trials, reported.record.winner.choice.kernel_template)) {
    explained.push_back({one.parameter, share(one.share), one.values});
  }
  json["explained"] = std::move(explained);
  return json;
}

Json evidence_json(const TuningRecord& record) {
  Json json;
  json["check"] = tree_of(record.check);
  json["check"]["max_error"] = rounded(record.check.max_error, 3);
  json["check"].erase("first_mismatch");
  Json audit = Json::array();
  for (const AuditRow& row : record.audit.rows) {
    audit.push_back({row.check, to_string(row.trust), row.detail});
  }
  json["audit"] = std::move(audit);
  Json paths = Json::array();
  for (const PathTime& time : record.launch_paths.times) {
    paths.push_back({to_string(time.path), rounded(time.host_us), rounded(time.period_us)});
  }
  json["launch_paths"] = std::move(paths);
  if (const std::optional<KernelPath> best = record.launch_paths.by_medians()) {
    json["best_path"] = to_string(*best);
    json["best_path_words"] = launch_words(record.launch_paths);
  }
  const SearchSummary& search = record.search;
  json["search"] = {{"strategy", search.strategy},
                    {"candidates", record.candidates},
                    {"rejected", search.rejected},
                    {"compiled", search.compiled},
                    {"measured", record.measured},
                    {"failed", search.failed},
                    {"raced", search.raced},
                    {"stop_reason", search.stop_reason},
                    {"regret_estimate", rounded(search.regret_estimate, 3)},
                    {"wall_seconds", rounded(record.wall_seconds, 4)},
                    {"settle_ms", rounded(record.settle_ms, 4)},
                    {"idle_seconds", rounded(record.idle_seconds, 3)}};
  return json;
}

/// Returns flops and bytes of the problem, and the rate of arithmetic that it may hope for.
Json work_json(const BoundProblem& problem, const DeviceProfile& profile) {
  Json json = Json::object();
  const auto flops = problem.operation().flops.evaluate(problem.scope());
  const auto bytes = problem.operation().bytes.evaluate(problem.scope());
  if (flops) json["flops"] = flops.value();
  if (bytes) json["bytes"] = bytes.value();
  json["tflops"] = rounded(arithmetic_tflops(problem, profile));
  return json;
}

Json profile_json(const DeviceProfile& profile) {
  const double l2_gbps = profile.rates.l2_bytes_per_clock * static_cast<double>(profile.sm_count) *
                         profile.sm_clock_mhz / 1e3;
  return {{"sku", profile.id},
          {"name", profile.name},
          {"dram_gbps", profile.dram_gbps},
          {"l2_gbps", rounded(l2_gbps)},
          {"l2_bytes", profile.l2_bytes},
          {"sm_clock_mhz", profile.sm_clock_mhz},
          {"dense_16bit_tflops", profile.dense_16bit_tflops},
          {"fp32_tflops", profile.fp32_tflops}};
}

/// Returns the record's statements about its problem. Without the problem's operation, which is in
/// a folder of templates that is not here, neither its bound nor its work is known.
Json problem_json(const ReportedRecord& reported, const Catalog& catalog, bool whole) {
  const TuningRecord& record = reported.record;
  Json json = {{"problem", record.key.problem},
               {"operation", operation_of(record.key.problem)},
               {"sku", record.key.sku},
               {"target", record.key.target},
               {"policy", record.key.policy.text()},
               {"device", record.device_name},
               {"created", record.created},
               {"driver", record.environment.driver},
               {"compiler", record.environment.compiler},
               {"kernwright", record.environment.kernwright},
               {"grade", to_string(record.grade)},
               {"verdict", to_string(record.verdict)},
               {"trust", to_string(record.trust)}};
  const Result<DeviceProfile> profile = find_profile(record.key.sku);
  const Result<Problem> problem = Problem::parse(record.key.problem);
  const Result<BoundProblem> bound =
      problem ? catalog.bind(*problem) : Result<BoundProblem>(problem.error());
  const ReportRow row =
      report_row(record, bound ? &*bound : nullptr, profile ? *profile : DeviceProfile{});
  json["us"] = rounded(row.us);
  json["roofline_us"] = rounded(record.roofline_us);
  json["roofline"] = share(row.roofline_share);
  if (row.bound) json["bound"] = to_string(*row.bound);
  json["support"] = to_string(row.support);
  json["words"] = record_words(record, row);
  if (record.grade == RecordGrade::measured) {
    if (row.paired_margin) json["margin"] = slowdown_json(*row.paired_margin);
    if (const Speedup* speedup = over_default(row)) {
      json["default"] = slowdown_json(
          {std::log(speedup->times), std::log(speedup->low), std::log(speedup->high)});
    }
  }
  if (bound && profile) json["work"] = work_json(*bound, *profile);
  Json finalists = Json::array();
  for (const Finalist& finalist : finalists_of(record)) {
    finalists.push_back(finalist_json(finalist, record.rounds));
  }
  json["finalists"] = std::move(finalists);
  json.update(evidence_json(record));
  if (!record.winner.measurement.samples_us.empty()) json["samples"] = samples_json(record, whole);
  if (!record.counters.empty()) json["counters"] = counters_json(record);
  json["trials"] = trials_json(reported);
  return json;
}

/// Replaces bytes that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json comparison_json(const ReportInput& input) {
  std::map<std::string, const TuningRecord*> before;
  for (const ReportedRecord& reported : input.before->records) {
    before[reported.record.key.text()] = &reported.record;
  }
  Json rows = Json::array();
  std::size_t index = 0;
  std::size_t only_after = 0;
  for (const ReportedRecord& reported : input.sources.records) {
    const TuningRecord& after = reported.record;
    const auto found = before.find(after.key.text());
    if (found == before.end()) {
      ++only_after;
    } else {
      const TuningRecord& earlier = *found->second;
      const Comparison compared = compare_winners(earlier, after);
      Json row = {{"index", index},
                  {"change", to_string(compared.change)},
                  {"slowdown", slowdown_json(compared.slowdown)},
                  {"before_us", rounded(winner_us(earlier))},
                  {"after_us", rounded(winner_us(after))},
                  {"before", earlier.winner.choice.id()},
                  {"same_choice", earlier.winner.choice == after.winner.choice}};
      if (earlier.environment.driver != after.environment.driver) {
        row["driver"] = earlier.environment.driver;
      }
      if (earlier.environment.compiler != after.environment.compiler) {
        row["compiler"] = earlier.environment.compiler;
      }
      rows.push_back(std::move(row));
      before.erase(found);
    }
    ++index;
  }
  return {{"name", input.before_name},
          {"rows", std::move(rows)},
          {"only_before", before.size()},
          {"only_after", only_after}};
}

}  // namespace

std::string report_json(const ReportInput& input) {
  const std::vector<ReportedRecord>& records = input.sources.records;
  Json json = {{"kernwright", kernwright_version()}, {"made", utc_now()}, {"sources", input.names}};
  Json problems = Json::array();
  std::map<std::string, Json> profiles;
  std::vector<std::string> skus;
  for (const ReportedRecord& reported : records) {
    problems.push_back(problem_json(reported, input.catalog, records.size() <= kMostWholeProblems));
    const std::string& sku = reported.record.key.sku;
    if (std::find(skus.begin(), skus.end(), sku) != skus.end()) continue;
    skus.push_back(sku);
  }
  Json devices = Json::array();
  for (const std::string& sku : skus) {
    if (const Result<DeviceProfile> profile = find_profile(sku)) {
      devices.push_back(profile_json(*profile));
    }
  }
  json["devices"] = std::move(devices);
  Json signs = Json::array();
  for (const ReportSign& sign : report_signs(input.sources)) {
    signs.push_back({{"text", sign.text}, {"problems", sign.records}});
  }
  json["signs"] = std::move(signs);
  json["problems"] = std::move(problems);
  Json families = Json::array();
  for (const FamilyRecord& family : input.sources.families) {
    families.push_back(family_json(family, input.catalog));
  }
  json["families"] = std::move(families);
  Json missing = Json::array();
  for (const ReportSources::Missing& one : input.sources.missing) {
    missing.push_back({{"problem", one.problem}, {"why", one.why}});
  }
  json["missing"] = std::move(missing);
  json["defects"] = input.sources.defects;
  json["bands"] = {{"tie", std::log1p(kEquivalence)}, {"delta", kDelta}};
  if (input.before != nullptr) json["compare"] = comparison_json(input);
  return text_of(json);
}

std::string record_data(const ReportedRecord& reported, const Catalog& catalog) {
  return text_of(problem_json(reported, catalog, true));
}

}  // namespace kernwright
