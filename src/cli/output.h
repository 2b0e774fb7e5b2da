#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "service/report/sweep_report.h"
#include "tuner/search/search.h"

namespace kernwright::cli {

using Json = nlohmann::ordered_json;

/// Prints one line on standard output. If that fails, `close_output` reports it.
void print(std::string_view line);
/// Opens the standard descriptors that the program was started without, so that no file of ours
/// takes their place. To be called first.
void keep_standard_descriptors();
/// Closes standard output, as the last step of a command. Returns `status`; or, if something could
/// not be written, reports that on standard error and returns `failed`.
Status close_output(Status status);
/// Prints `kernwright: <message>` on standard error. Returns `Status::failed`, or `usage` for an
/// invalid argument.
Status report(const Error& error);
/// Prints `kernwright: warning: <message>` on standard error.
void report_warning(std::string_view message);
/// Prints an indented JSON object on standard output.
void print_json(const Json& json);

/// A time in a fitting unit, with one digit after the point, or two below 10: "255.1 us", "1.25
/// ms", "116.2 ns".
std::string format_us(double us);
/// A number of bytes in units of powers of 1000, "32.0 KB".
std::string format_bytes(double bytes);
/// A share in percent, "82 %"; below 10 % it has a digit after the point.
std::string format_share(double share);
/// A duration, "90 s", "12 min", "3.5 h".
std::string format_duration(double seconds);

/// An array of {path, host_us, period_us}.
Json paths_json(const LaunchTimes& paths);
/// The name of a path; null where it is not known.
Json path_json(const std::optional<KernelPath>& path);

Json record_json(const TuningRecord& record);

/// Adds how a record is judged: `us`, `bound`, `margin`, `support`, `speedups`, `next_evidence`.
void add_judgement(Json& record, const ReportRow& row);

/// A record with the statistics of its session: trials by outcome, and the time of each part.
Json result_json(const TuningResult& result);

}  // namespace kernwright::cli
