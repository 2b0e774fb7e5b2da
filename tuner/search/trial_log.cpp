#include "tuner/search/trial_log.h"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "cache/fields/tree_writer.h"
#include "support/files.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr FileKind kLog{"log of trials", std::uint64_t{1} << 30};

/// Logs of compilers and drivers may hold any bytes; the line stays valid JSON.
std::string one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

TrialLog::TrialLog(std::filesystem::path path) : path_(std::move(path)) {}

Result<void> TrialLog::begin(const RecordKey& key, const RecordEnvironment& environment) {
  if (path_.empty()) return {};
  Json session = tree_of(key);
  session.update(tree_of(environment));
  session.erase("template_digest");
  return append_line(path_, one_line({{"session", std::move(session)}}), kLog);
}

Result<void> TrialLog::append(const Trial& trial) {
  if (path_.empty()) return {};
  Json json = tree_of(trial.choice);
  json["outcome"] = to_string(trial.outcome);
  if (!trial.detail.empty()) json["detail"] = trial.detail;
  if (!trial.measurement.samples_us.empty()) {
    json["median_us"] = trial.measurement.median_us();
    json["samples_us"] = trial.measurement.samples_us;
  }
  if (trial.check.elements != 0) {
    json["check"] = {{"max_error", trial.check.max_error},
                     {"mismatches", trial.check.mismatches},
                     {"elements", trial.check.elements}};
  }
  const Resources& resources = trial.resources;
  json["resources"] = {{"registers", resources.registers},
                       {"spill_bytes", resources.spill_bytes()},
                       {"stack_bytes", resources.stack_bytes},
                       {"static_smem_bytes", resources.static_smem_bytes}};
  json["predicted_us"] = trial.predicted_us;
  json["compile_seconds"] = trial.compile_seconds;
  return append_line(path_, one_line(json), kLog);
}

}  // namespace kernwright
