#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "tuner/tuning_session.h"

namespace kernwright::cli {

using Json = nlohmann::ordered_json;

/// One line on standard output.
void print(std::string_view line);
/// `kernwright: <message>` on standard error; gives `Status::failed`, or `usage` for a bad
/// argument.
Status report(const Error& error);
/// `kernwright: warning: <message>` on standard error.
void report_warning(std::string_view message);
/// A JSON object on standard output, indented.
void print_json(const Json& json);

/// "255.1 us", with four significant digits.
std::string format_us(double us);
/// "90 s", "12 min", "3.5 h".
std::string format_duration(double seconds);

/// A line on standard error that replaces itself on a terminal; elsewhere printed at most every
/// five seconds.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(std::string_view text, double seconds);

 private:
  bool terminal_;
  bool dirty_ = false;
  double printed_ = -1e9;
};

/// An array of {path, host_us, period_us}.
Json paths_json(const LaunchPaths& paths);
/// Its name; null where it is not known.
Json path_json(const std::optional<KernelPath>& path);

/// What a record says, for people and as JSON.
Json record_json(const TuningRecord& record);
void print_record(const TuningRecord& record, const DeviceProfile& profile);
/// The line of a table of winners.
std::string winner_line(const TuningRecord& record);

/// A session's account: trials by outcome and where the time went.
Json result_json(const TuningResult& result);
void print_result(const TuningResult& result, const DeviceProfile& profile);

/// Tunes, or predicts where the service has no GPU, showing progress unless `quiet`.
Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, bool quiet);

}  // namespace kernwright::cli
