#include "cli/output.h"

#include <cinttypes>
#include <cstdio>
#include <map>
#include <mutex>
#include <unistd.h>

#include "support/text.h"
#include "tuner/decision.h"

namespace kernwright::cli {
namespace {

std::mutex& stream_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", whole > 0 ? 100 * part / whole : 0);
  return text;
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

double winner_us(const TuningRecord& record) {
  const Measurement in_turn = final_times(record.winner, record.rounds).in_turn;
  return in_turn.samples_us.empty() ? record.winner.predicted_us : in_turn.median_us();
}

std::string ranked_line(const char* label, const RankedConfiguration& ranked,
                        const FinalRounds& rounds) {
  char text[96];
  const FinalTimes times = final_times(ranked, rounds);
  if (ranked.measurement.samples_us.empty()) {
    std::snprintf(text, sizeof text, "  %-10s %12s  predicted        ", label,
                  format_us(ranked.predicted_us).c_str());
  } else {
    std::snprintf(text, sizeof text, "  %-10s %12s  mad %-9s n %-3zu", label,
                  format_us(times.in_turn.median_us()).c_str(),
                  format_us(times.in_turn.mad_us()).c_str(), times.in_turn.samples_us.size());
  }
  std::string line = concat(text, "  ", ranked.kernel_template, " ", ranked.configuration.text());
  if (!times.alone.samples_us.empty()) {
    line += concat("; alone ", format_us(times.alone.median_us()));
  }
  return line;
}

Json ranked_json(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  Json parameters = Json::object();
  for (const auto& [name, value] : ranked.configuration.values()) parameters[name] = value;
  Json json = {{"template", ranked.kernel_template},
               {"configuration", std::move(parameters)},
               {"artifact", ranked.artifact},
               {"predicted_us", ranked.predicted_us},
               {"registers", ranked.resources.registers},
               {"spill_bytes", ranked.resources.spill_bytes()}};
  if (!ranked.measurement.samples_us.empty()) {
    const auto [in_turn, alone] = final_times(ranked, rounds);
    json["median_us"] = in_turn.median_us();
    json["mad_us"] = in_turn.mad_us();
    json["samples"] = in_turn.samples_us.size();
    if (!alone.samples_us.empty()) json["alone_us"] = alone.median_us();
  }
  return json;
}

std::string paths_line(const LaunchPaths& paths) {
  if (!paths.best) return "  launch paths: not measured";
  std::string line =
      concat("  launched best by ", to_string(*paths.best), "; back to back (host):");
  for (const PathTime& time : paths.times) {
    line += concat(&time == &paths.times.front() ? " " : ", ", to_string(time.path), " ",
                   format_us(time.period_us), " (", format_us(time.host_us), ")");
  }
  return line;
}

std::map<std::string, int> outcomes(const TuningResult& result) {
  std::map<std::string, int> counts;
  for (const Trial& trial : result.trials) ++counts[std::string(to_string(trial.outcome))];
  return counts;
}

}  // namespace

void print(std::string_view line) {
  const std::lock_guard lock(stream_mutex());
  std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stdout);
}

void print_json(const Json& json) { print(json.dump(2)); }

Status report(const Error& error) {
  const std::lock_guard lock(stream_mutex());
  std::fprintf(stderr, "kernwright: %s\n", error.message.c_str());
  return error.code == ErrorCode::invalid_argument ? Status::usage : Status::failed;
}

void report_warning(std::string_view message) {
  const std::lock_guard lock(stream_mutex());
  std::fprintf(stderr, "kernwright: warning: %.*s\n", static_cast<int>(message.size()),
               message.data());
}

std::string format_us(double us) {
  char text[32];
  std::snprintf(text, sizeof text, us < 100 ? "%.3g us" : "%.4g us", us);
  if (us >= 10000) std::snprintf(text, sizeof text, "%.0f us", us);
  return text;
}

std::string format_duration(double seconds) {
  char text[48];
  if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && dirty_) std::fprintf(stderr, "\r\033[K");
}

void ProgressLine::update(std::string_view text, double now_seconds) {
  const double interval = terminal_ ? 0.1 : 5.0;
  if (now_seconds - printed_ < interval) return;
  printed_ = now_seconds;
  dirty_ = true;
  std::fprintf(stderr, terminal_ ? "\r\033[K%.*s" : "%.*s\n", static_cast<int>(text.size()),
               text.data());
  std::fflush(stderr);
}

Json paths_json(const LaunchPaths& paths) {
  Json json = Json::array();
  for (const PathTime& time : paths.times) {
    json.push_back(
        {{"path", to_string(time.path)}, {"host_us", time.host_us}, {"period_us", time.period_us}});
  }
  return json;
}

Json path_json(const std::optional<KernelPath>& path) {
  return path ? Json(to_string(*path)) : Json();
}

Json record_json(const TuningRecord& record) {
  Json json = {{"problem", record.key.problem},
               {"target", record.key.target},
               {"sku", record.key.sku},
               {"policy", record.key.policy.text()},
               {"grade", record.grade == RecordGrade::measured ? "measured" : "predicted"},
               {"winner", ranked_json(record.winner, record.rounds)},
               {"roofline_us", record.roofline_us},
               {"roofline_share", record.roofline_us / winner_us(record)},
               {"candidates", record.candidates},
               {"measured", record.measured},
               {"device", record.device_name},
               {"uuid", record.device_uuid},
               {"environment",
                {{"template_digest", record.environment.template_digest},
                 {"compiler", record.environment.compiler},
                 {"driver", record.environment.driver},
                 {"kernwright", record.environment.kernwright}}},
               {"created", record.created},
               {"wall_seconds", record.wall_seconds}};
  if (record.baseline) json["baseline"] = ranked_json(*record.baseline, record.rounds);
  json["runners_up"] = Json::array();
  for (const RankedConfiguration& ranked : record.runners_up) {
    json["runners_up"].push_back(ranked_json(ranked, record.rounds));
  }
  if (record.grade == RecordGrade::measured) {
    json["check"] = {
        {"max_error", record.check.max_error}, {"mismatches", record.check.mismatches},
        {"elements", record.check.elements},   {"exact", record.check.exact},
        {"guarded", record.check.guarded},     {"unmapped", record.check.unmapped},
        {"repeats", record.check.repeats},     {"after_timing", record.check.after_timing}};
    json["verdict"] = to_string(record.verdict);
    json["trust"] = to_string(record.trust);
    json["audit"] = Json::array();
    for (const AuditRow& row : record.audit.rows) {
      json["audit"].push_back(
          {{"check", row.check}, {"trust", to_string(row.trust)}, {"detail", row.detail}});
    }
    json["search"] = {{"strategy", record.search.strategy},
                      {"seed", record.search.seed},
                      {"compiled", record.search.compiled},
                      {"failed", record.search.failed},
                      {"raced", record.search.raced},
                      {"seeds", record.search.seeds},
                      {"stop_reason", record.search.stop_reason},
                      {"hardly_looked", hardly_looked(record)},
                      {"regret_estimate", record.search.regret_estimate}};
    json["launch_paths"] = paths_json(record.launch_paths);
    json["best_path"] = path_json(record.launch_paths.best);
    json["settle_ms"] = record.settle_ms;
    json["idle_seconds"] = record.idle_seconds;
    json["longest_idle_ms"] = record.longest_idle_ms;
  }
  return json;
}

std::string winner_line(const TuningRecord& record) {
  const double us = winner_us(record);
  char figures[96];
  std::snprintf(figures, sizeof figures, "%12s %s  roofline %10s  %5s  ", format_us(us).c_str(),
                record.grade == RecordGrade::measured ? "measured " : "predicted",
                format_us(record.roofline_us).c_str(), percent(record.roofline_us, us).c_str());
  return concat(record.key.problem, "\n  ", figures, record.winner.kernel_template, " ",
                record.winner.configuration.text());
}

void print_record(const TuningRecord& record, const DeviceProfile& profile) {
  print(concat(record.key.problem, " on ", record.device_name, " (", record.key.sku, ", ",
               record.key.target, "), ", record.key.policy.text(), ", ",
               record.grade == RecordGrade::measured ? "measured" : "predicted", " ",
               record.created));
  print(ranked_line("winner", record.winner, record.rounds));
  if (record.baseline) print(ranked_line("default", *record.baseline, record.rounds));
  for (const RankedConfiguration& ranked : record.runners_up)
    print(ranked_line("", ranked, record.rounds));
  print(concat("  roofline ", format_us(record.roofline_us), " on ", profile.id,
               ": the winner is at ", percent(record.roofline_us, winner_us(record)), " of it"));
  if (record.grade == RecordGrade::measured) {
    print(concat("  checked ", record.check.elements, " elements: ", record.check.mismatches,
                 " beyond the bound, largest error ", record.check.max_error, " of it; ",
                 record.check.exact ? "exact on small integers, " : "",
                 record.check.guarded ? "red zones intact, " : "",
                 record.check.unmapped ? "no stray access, " : "", record.check.repeats,
                 " runs with equal bits"));
    print(concat("  verdict ", to_string(record.verdict), ", trust ", to_string(record.trust),
                 "; stopped by ", record.search.stop_reason, ", what was not tried may be ",
                 percent(record.search.regret_estimate, 1), " faster"));
    if (hardly_looked(record)) {
      print(concat("  the search has hardly looked: ", record.measured + record.search.failed,
                   " of ", record.candidates, " candidates were tried before its ",
                   record.search.stop_reason == "trials" ? "trials" : "seconds", " were over"));
    }
    print(paths_line(record.launch_paths));
    for (const AuditRow& row : record.audit.rows) {
      if (row.trust == Trust::a) continue;
      print(concat("  ", to_string(row.trust), " for ", row.check, ": ", row.detail));
    }
  }
  print(concat("  ", record.candidates, " candidates, ", record.measured, " measured; ",
               record.environment.compiler, ", driver ",
               record.environment.driver.empty() ? "none" : record.environment.driver,
               ", kernwright ", record.environment.kernwright));
}

Json result_json(const TuningResult& result) {
  Json json = record_json(result.record);
  json["outcomes"] = outcomes(result);
  json["rejected_configurations"] = result.rejected;
  json["notes"] = result.notes;
  json["shares"] = {{"wall_seconds", result.shares.wall_seconds},
                    {"setup_seconds", result.shares.setup_seconds},
                    {"settle_seconds", result.shares.settle_seconds},
                    {"measure_seconds", result.shares.measure_seconds},
                    {"filler_seconds", result.shares.filler_seconds},
                    {"finals_seconds", result.shares.finals_seconds},
                    {"device_seconds", result.shares.device.seconds()},
                    {"busy_seconds", result.shares.device.busy_seconds},
                    {"idle_seconds", result.shares.device.idle_seconds()},
                    {"compile_seconds", result.shares.compile_seconds},
                    {"compile_threads", result.shares.compile_threads}};
  return json;
}

void print_result(const TuningResult& result, const DeviceProfile& profile) {
  print_record(result.record, profile);
  std::string line = concat("  trials: ", result.trials.size(), " (");
  bool first = true;
  for (const auto& [outcome, count] : outcomes(result)) {
    line += concat(first ? "" : ", ", count, " ", outcome);
    first = false;
  }
  print(concat(line, "), ", result.rejected, " configurations break a rule"));
  for (const std::string& note : result.notes) print(concat("  note: ", note));
  const TimeShares& shares = result.shares;
  print(concat("  wall ", seconds(shares.wall_seconds), ": set-up ",
               percent(shares.setup_seconds, shares.wall_seconds), ", measuring ",
               percent(shares.measure_seconds, shares.wall_seconds), ", more of the best ",
               percent(shares.filler_seconds, shares.wall_seconds), ", finals ",
               percent(shares.finals_seconds, shares.wall_seconds), "; compiling took ",
               seconds(shares.compile_seconds), " on ", shares.compile_threads, " threads"));
  const DeviceUse& device = shares.device;
  if (device.busy_seconds > 0) {
    print(concat("  from its first sample on the GPU was idle for ",
                 percent(device.idle_seconds(), device.seconds()), ", at most ",
                 format_us(1e6 * device.longest_idle_seconds), " at a time"));
  }
}

Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, bool quiet) {
  // What spills or does not compile is dropped, so a prediction looks at more than its first
  // choice.
  constexpr int kPredictCompiles = 24;
  if (!service.has_device()) return service.predict(problem, kPredictCompiles);
  ProgressLine line;
  if (!quiet) {
    options.progress = [&](const TuningProgress& p) {
      line.update(concat(problem.text(), ": ", p.measured, " of ", p.candidates, " measured, ",
                         p.compiled, " compiled, ", p.failed, " failed, best ",
                         format_us(p.best_us), " ", p.best, " after ", seconds(p.seconds)),
                  p.seconds);
    };
  }
  return service.tune(problem, std::move(options));
}

}  // namespace kernwright::cli
