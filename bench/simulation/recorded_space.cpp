#include "bench/simulation/recorded_space.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "bench/simulation/json_lines.h"
#include "bench/simulation/logged_trials.h"
#include "support/files.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

/// `-1` marks a parameter that this template lacks, if several templates share a file.
constexpr std::int64_t kNotOfThisOne = -1;

/// The text of a file that may be compressed; zlib reads plain files as they are.
Result<std::string> read_text(const std::filesystem::path& path) {
  KW_TRY(read_file(path));
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return Error{ErrorCode::io, concat(path.string(), ": cannot be opened")};
  std::string text;
  std::string block(1U << 20U, '\0');
  int count = 0;
  while ((count = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0) {
    text.append(block, 0, static_cast<std::size_t>(count));
  }
  int status = Z_OK;
  const std::string reason = gzerror(file, &status);
  gzclose(file);
  if (count < 0 || (status != Z_OK && status != Z_STREAM_END)) {
    return Error{ErrorCode::corrupt, concat(path.string(), ": ", reason)};
  }
  return text;
}

std::optional<double> microseconds_per(std::string_view unit) {
  if (unit == "us") return 1;
  if (unit == "ms") return 1e3;
  if (unit == "s") return 1e6;
  if (unit == "ns") return 1e-3;
  return std::nullopt;
}

/// Reads line by line; the first defect ends it.
class LandscapeReader {
 public:
  explicit LandscapeReader(std::string file) : lines_(std::move(file)) {}

  Result<RecordedSpace> read(std::string_view text) {
    const auto object = [this](const Json& json) {
      return parameters_.empty() ? header(json) : configuration(json);
    };
    KW_TRY(lines_.each(text, object));
    if (parameters_.empty()) return defect("no header");
    KW_TRY(find_default());
    const auto& all = space_.configurations;
    if (std::none_of(all.begin(), all.end(),
                     [](const auto& one) { return one.outcome == Outcome::ok; })) {
      return defect("no configuration is ok");
    }
    return std::move(space_);
  }

 private:
  template <typename... Parts>
  Error defect(const Parts&... parts) const {
    return lines_.defect(parts...);
  }

  static std::string text_of(const Json& json, const char* field) {
    const auto found = json.find(field);
    if (found == json.end()) return {};
    return found->is_string() ? found->get<std::string>() : found->dump();
  }

  Result<void> header(const Json& json) {
    for (const char* field : {"space", "device", "kernel", "unit"}) {
      if (!json.contains(field) || !json[field].is_string()) {
        return defect("the header has no text \"", field, '"');
      }
    }
    const auto scale = microseconds_per(json["unit"].get_ref<const std::string&>());
    if (!scale) return defect("unit ", json["unit"].dump(), " is none of ns, us, ms, s");
    scale_ = *scale;
    space_.name = text_of(json, "space");
    space_.device = text_of(json, "device");
    space_.kernel = text_of(json, "kernel");
    space_.problem = text_of(json, json.contains("problem") ? "problem" : "problem_size");
    space_.policy = text_of(json, "policy");
    if (!json.contains("parameters") || !json["parameters"].is_array() ||
        json["parameters"].empty()) {
      return defect("the header has no list \"parameters\"");
    }
    for (const Json& name : json["parameters"]) {
      if (!name.is_string()) return defect("parameter ", name.dump(), " is no name");
      parameters_.push_back(name.get<std::string>());
    }
    if (std::set(parameters_.begin(), parameters_.end()).size() != parameters_.size()) {
      return defect("two parameters have one name");
    }
    if (json.contains("values") && json["values"].is_object()) values_ = json["values"];
    if (json.contains("default")) default_ = json["default"];
    const auto templates = json.find("templates");
    if (templates == json.end()) {
      space_.templates = {space_.kernel};
      return {};
    }
    if (parameters_.front() != "template" || !templates->is_array() || templates->empty()) {
      return defect("\"templates\" is a list of names, for a first parameter \"template\"");
    }
    for (const Json& name : *templates) {
      if (!name.is_string()) return defect("template ", name.dump(), " is no name");
      space_.templates.push_back(name.get<std::string>());
    }
    several_ = true;
    return {};
  }

  /// A value as an integer: as it is, or its place in the header's list.
  std::optional<std::int64_t> value_of(std::size_t parameter, const Json& json) const {
    if (json.is_number_integer()) return json.get<std::int64_t>();
    const auto list = values_.find(parameters_[parameter]);
    if (list == values_.end() || !list->is_array()) return std::nullopt;
    const auto place = std::find(list->begin(), list->end(), json);
    if (place == list->end()) return std::nullopt;
    return place - list->begin();
  }

  /// Fills in template and configuration.
  Result<void> point(const Json& json, RecordedConfiguration& one) const {
    if (!json.is_array() || json.size() != parameters_.size()) {
      return defect("a configuration is a list of ", parameters_.size(), " values, not ",
                    json.dump());
    }
    std::vector<std::pair<std::string, std::int64_t>> values;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto value = value_of(i, json[i]);
      if (!value) {
        return defect(parameters_[i], " = ", json[i].dump(), " is not in the header's values");
      }
      if (several_ && i == 0) {
        if (*value < 0 || *value >= static_cast<std::int64_t>(space_.templates.size())) {
          return defect("template ", *value, ": there are ", space_.templates.size());
        }
        one.kernel_template = static_cast<int>(*value);
      } else if (!several_ || *value != kNotOfThisOne) {
        values.emplace_back(parameters_[i], *value);
      }
    }
    one.configuration = Configuration(std::move(values));
    return {};
  }

  Result<void> numbers(const Json& json, const char* field, std::vector<double>& out) const {
    const auto found = json.find(field);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_array()) return defect("\"", field, "\" is no list of numbers");
    for (const Json& number : *found) {
      if (!number.is_number() || !std::isfinite(number.get<double>()) || number < 0) {
        return defect("\"", field, "\" holds ", number.dump());
      }
      out.push_back(number.get<double>());
    }
    return {};
  }

  /// A number that need not be there.
  template <typename T>
  Result<void> number(const Json& json, const char* field, T& out) const {
    const auto found = json.find(field);
    if (found == json.end() || found->is_null()) return {};
    if (!found->is_number()) return defect("\"", field, "\" is ", found->dump());
    out = found->get<T>();
    return {};
  }

  Result<void> outcome(const Json& json, RecordedConfiguration& one) const {
    const auto ok = json.find("ok");
    if (ok == json.end() || !ok->is_boolean()) return defect("\"ok\" is true or false");
    const auto named = json.find("outcome");
    if (named != json.end()) {
      const auto parsed = named->is_string()
                              ? parse_as<Outcome>(named->get_ref<const std::string&>())
                              : std::nullopt;
      if (!parsed) return defect("outcome ", named->dump(), " is unknown");
      one.outcome = *parsed;
      if ((one.outcome == Outcome::ok) != ok->get<bool>()) {
        return defect("outcome ", named->dump(), " and ok = ", ok->dump());
      }
    } else if (!ok->get<bool>()) {
      one.outcome = Outcome::launch_failed;
    }
    return {};
  }

  Result<void> configuration(const Json& json) {
    if (!json.contains("c")) return defect("no configuration \"c\"");
    RecordedConfiguration one;
    std::vector<Result<void>> read;
    read.push_back(point(json["c"], one));
    read.push_back(outcome(json, one));
    read.push_back(numbers(json, "t", one.samples_us));
    read.push_back(numbers(json, "mhz", one.sm_mhz));
    read.push_back(number(json, "compile_s", one.compile_seconds));
    read.push_back(number(json, "predicted_us", one.predicted_us));
    read.push_back(number(json, "regs", one.registers));
    read.push_back(number(json, "spill", one.spill_bytes));
    read.push_back(number(json, "smem", one.smem_bytes));
    for (const Result<void>& part : read) {
      if (!part) return part.error();
    }
    for (double& us : one.samples_us) us *= scale_;
    if (!one.sm_mhz.empty() && one.sm_mhz.size() != one.samples_us.size()) {
      return defect(one.sm_mhz.size(), " clocks for ", one.samples_us.size(), " samples");
    }
    if (one.outcome == Outcome::ok) {
      if (one.samples_us.empty()) return defect("ok, but without samples");
      const auto half = static_cast<std::ptrdiff_t>(one.samples_us.size() / 2);
      one.truth_us = median({one.samples_us.begin() + half, one.samples_us.end()});
      if (one.truth_us <= 0) return defect("takes ", one.truth_us, " us");
    }
    const auto [known, added] =
        line_of_.emplace(concat(one.kernel_template, " ", one.configuration.text()), lines_.line());
    if (!added) {
      return defect(one.configuration.text(), " stands on line ", known->second, " already");
    }
    space_.configurations.push_back(std::move(one));
    return {};
  }

  Result<void> find_default() {
    if (default_.is_null()) return {};
    lines_.blame(1);
    RecordedConfiguration named;
    KW_TRY(point(default_, named));
    const auto& all = space_.configurations;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) {
      return one.kernel_template == named.kernel_template &&
             one.configuration == named.configuration;
    });
    if (found == all.end()) {
      return defect("the default ", named.configuration.text(), " is not in the space");
    }
    space_.default_index = static_cast<std::size_t>(found - all.begin());
    return {};
  }

  JsonLines lines_;
  double scale_ = 1;
  bool several_ = false;
  std::vector<std::string> parameters_;
  Json values_ = Json::object();
  Json default_;
  std::map<std::string, int> line_of_;
  RecordedSpace space_;
};

/// Reads each session of a file of trial logs as a space.
Result<std::vector<RecordedSpace>> read_sessions(const std::filesystem::path& file) {
  KW_ASSIGN(const std::string text, read_text(file));
  std::vector<RecordedSpace> spaces;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t next = text.find("\n{\"session\"", begin);
    const std::size_t end = next == std::string::npos ? text.size() : next + 1;
    KW_ASSIGN(auto space, read_logged_trials(text.substr(begin, end - begin), file.string()));
    spaces.push_back(std::move(space));
    begin = end;
  }
  return spaces;
}

}  // namespace

double RecordedSpace::best_us() const {
  double best = std::numeric_limits<double>::infinity();
  for (const RecordedConfiguration& one : configurations) {
    if (one.outcome == Outcome::ok) best = std::min(best, one.truth_us);
  }
  return best;
}

Result<RecordedSpace> read_recorded_space(const std::filesystem::path& path) {
  KW_ASSIGN(auto text, read_text(path));
  if (is_trial_log(text)) return read_logged_trials(text, path.string());
  return LandscapeReader(path.string()).read(text);
}

Result<std::vector<RecordedSpace>> read_recorded_spaces(const std::filesystem::path& folder) {
  if (std::filesystem::is_regular_file(folder)) return read_sessions(folder);
  std::vector<RecordedSpace> spaces;
  for (const std::string& name : list_directory(folder)) {
    if (!name.ends_with(".jsonl") && !name.ends_with(".jsonl.gz")) continue;
    KW_ASSIGN(auto space, read_recorded_space(folder / name));
    spaces.push_back(std::move(space));
  }
  if (spaces.empty()) {
    return Error{ErrorCode::not_found,
                 concat(folder.string(), ": no .jsonl or .jsonl.gz of a recorded space")};
  }
  return spaces;
}

}  // namespace kernwright
