#include "bench/simulation/logged_trials.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "bench/simulation/json_lines.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

/// Reads line by line; the first defect ends it.
class TrialLogReader {
 public:
  explicit TrialLogReader(std::string file) : lines_(std::move(file)) {}

  Result<RecordedSpace> read(std::string_view text) {
    const auto object = [this](const Json& json) {
      return json.contains("session") ? session(json["session"]) : trial(json);
    };
    KW_TRY(lines_.each(text, object));
    const auto& all = space_.configurations;
    if (std::none_of(all.begin(), all.end(),
                     [](const auto& one) { return one.outcome == Outcome::ok; })) {
      return defect("no trial is ok");
    }
    return std::move(space_);
  }

 private:
  template <typename... Parts>
  Error defect(const Parts&... parts) const {
    return lines_.defect(parts...);
  }

  static const std::string* text_of(const Json& json, const char* field) {
    const auto found = json.find(field);
    return found == json.end() ? nullptr : found->get_ptr<const std::string*>();
  }

  /// Begins a session, and forgets the trials that an earlier session logged.
  Result<void> session(const Json& json) {
    const auto field = [&](const char* name) -> Result<std::string> {
      if (const std::string* text = text_of(json, name)) return *text;
      return defect("the session has no text \"", name, '"');
    };
    KW_ASSIGN(auto problem, field("problem"));
    KW_ASSIGN(auto sku, field("sku"));
    KW_ASSIGN(auto policy, field("policy"));
    space_ = {};
    places_.clear();
    space_.name = std::filesystem::path(lines_.file()).filename().string();
    space_.name.resize(std::min(space_.name.find('.'), space_.name.size()));
    space_.device = std::move(sku);
    space_.problem = std::move(problem);
    space_.policy = std::move(policy);
    space_.kernel = space_.problem.substr(0, space_.problem.find(' '));
    return {};
  }

  Result<void> trial(const Json& json) {
    if (space_.problem.empty()) return defect("a trial before any session");
    RecordedConfiguration one;
    KW_TRY(point(json, one));
    const std::string* named = text_of(json, "outcome");
    const auto outcome = named != nullptr ? parse_as<Outcome>(*named) : std::nullopt;
    if (!outcome) return defect("the trial has no known \"outcome\"");
    one.outcome = *outcome;
    KW_TRY(samples(json, one));
    if (one.outcome == Outcome::ok) {
      if (one.samples_us.empty()) return defect("ok, but without samples");
      one.truth_us = Measurement{one.samples_us}.median_us();
      if (one.truth_us <= 0) return defect("takes ", one.truth_us, " us");
    }
    one.compile_seconds = number(json, "compile_seconds");
    one.predicted_us = number(json, "predicted_us");
    if (const auto found = json.find("resources"); found != json.end()) {
      one.registers = static_cast<int>(number(*found, "registers"));
      one.spill_bytes = static_cast<int>(number(*found, "spill_bytes"));
    }
    auto& all = space_.configurations;
    const auto [place, added] =
        places_.emplace(concat(one.kernel_template, " ", one.configuration.text()), all.size());
    if (added) {
      all.push_back(std::move(one));
      return {};
    }
    RecordedConfiguration& screened = all[place->second];
    if (one.outcome == Outcome::ok && screened.outcome == Outcome::ok) {
      screened.final_us = one.truth_us;
    } else {
      screened = std::move(one);
    }
    return {};
  }

  /// Fills in template and configuration.
  Result<void> point(const Json& json, RecordedConfiguration& one) {
    const std::string* name = text_of(json, "template");
    if (name == nullptr) return defect("the trial has no text \"template\"");
    auto& templates = space_.templates;
    const auto known = std::find(templates.begin(), templates.end(), *name);
    one.kernel_template = static_cast<int>(known - templates.begin());
    if (known == templates.end()) templates.push_back(*name);
    const auto configuration = json.find("configuration");
    if (configuration == json.end() || !configuration->is_object()) {
      return defect("the trial has no object \"configuration\"");
    }
    std::vector<std::pair<std::string, std::int64_t>> values;
    for (const auto& [parameter, value] : configuration->items()) {
      if (!value.is_number_integer()) return defect(parameter, " = ", value.dump());
      values.emplace_back(parameter, value.get<std::int64_t>());
    }
    one.configuration = Configuration(std::move(values));
    return {};
  }

  Result<void> samples(const Json& json, RecordedConfiguration& one) const {
    const auto found = json.find("samples_us");
    if (found == json.end()) return {};
    if (!found->is_array()) return defect("\"samples_us\" is no list of numbers");
    for (const Json& us : *found) {
      if (!us.is_number() || us.get<double>() < 0)
        return defect("\"samples_us\" holds ", us.dump());
      one.samples_us.push_back(us.get<double>());
    }
    return {};
  }

  /// Returns the field, 0 if it is not there.
  static double number(const Json& json, const char* field) {
    const auto found = json.find(field);
    return found != json.end() && found->is_number() ? found->get<double>() : 0;
  }

  JsonLines lines_;
  std::map<std::string, std::size_t> places_;
  RecordedSpace space_;
};

}  // namespace

bool is_trial_log(std::string_view text) {
  const Json json = parse_value(text.substr(0, text.find('\n')));
  return json.is_object() && json.contains("session");
}

Result<RecordedSpace> read_logged_trials(std::string_view text, const std::string& file) {
  return TrialLogReader(file).read(text);
}

}  // namespace kernwright
