#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "tuner/session/search.h"

namespace kernwright::cli {

using Json = nlohmann::ordered_json;

/// One line on standard output. Where that cannot be written, `close_output` tells.
void print(std::string_view line);
/// Sees to it that no file of ours becomes standard output where the program was started without
/// one. To be called first.
void keep_standard_descriptors();
/// Closes standard output, as the last thing a command does. Gives `status`, or, where anything
/// that was printed could not be written, `failed`, having said so on standard error.
Status close_output(Status status);
/// `kernwright: <message>` on standard error; gives `Status::failed`, or `usage` for a bad
/// argument.
Status report(const Error& error);
/// `kernwright: warning: <message>` on standard error.
void report_warning(std::string_view message);
/// A JSON object on standard output, indented.
void print_json(const Json& json);

/// In the unit that fits, with one digit behind the point, or two below 10: "255.1 us", "1.25 ms",
/// "116.2 ns".
std::string format_us(double us);
/// "32.0 KB", of 1000 bytes each.
std::string format_bytes(double bytes);
/// "82 %", below 10 % with a digit behind the point.
std::string format_share(double share);
/// "90 s", "12 min", "3.5 h".
std::string format_duration(double seconds);

/// An array of {path, host_us, period_us}.
Json paths_json(const LaunchPaths& paths);
/// Its name; null where it is not known.
Json path_json(const std::optional<KernelPath>& path);

Json record_json(const TuningRecord& record);

/// The record with its session's account: trials by outcome and where the time went.
Json result_json(const TuningResult& result);

}  // namespace kernwright::cli
