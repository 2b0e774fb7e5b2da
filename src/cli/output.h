#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "service/report/sweep_report.h"
#include "service/serve/core.h"
#include "support/text.h"

namespace kernwright::cli {

using Json = nlohmann::ordered_json;

// All output of the tool goes through these functions, which make it visible (`support/text.h`): a
// record, a worklist or a file's name may contain characters that a terminal obeys.

/// Prints one line on standard output. If that fails, `close_output` reports it.
void print(std::string_view line);
/// Prints text of several lines.
void print_lines(std::string_view text);
/// Opens the standard descriptors that the program was started without, so that no file of ours
/// takes their place. Must be called first.
void keep_standard_descriptors();
/// Closes standard output, as the last step of a command. Returns `status`; or, if something could
/// not be written, reports that on standard error and returns `failed`.
Status close_output(Status status);
/// Prints `kernwright: <message>` on standard error. Returns `Status::failed`, or `usage` for an
/// invalid argument.
Status report(const Error& error);
/// Prints `kernwright: warning: <message>` on standard error.
void report_warning(std::string_view message);
/// Prints an indented JSON object on standard output. Bytes of names that are not UTF-8 are
/// replaced.
void print_json(const Json& json);
/// Shows a line on the terminal of standard error in place of the one that was shown last.
void show_status(std::string_view text);
/// From now on Ctrl-C ends the program with exit status 130 and `message` on standard error. Only
/// unfinished work is lost, because files are always published whole. To be called once.
void end_on_interrupt(std::string_view message);
/// Returns the text that others write on standard error during `run`, while no other thread runs.
/// It does not go to standard error. Errors: `io`, `unavailable`; then nothing was run.
Result<std::string> captured_errors(const std::function<void()>& run);

/// Returns "3 records", or "3 records, 1 family" if there are families.
template <std::integral Count>
std::string counted_records(Count records, Count families) {
  const std::string text = counted(records, "record");
  return families == 0 ? text : concat(text, ", ", counted(families, "family", "families"));
}

/// Returns a time in a fitting unit, with one digit after the point, or two below 10: "255.1 us",
/// "1.25 ms", "116.2 ns".
std::string format_us(double us);
/// Returns a number of bytes in units of powers of 1000, "32.0 KB".
std::string format_bytes(double bytes);
/// Returns a share in percent, "82 %"; below 10 % it has a digit after the point.
std::string format_share(double share);
/// Returns a duration, "90 s", "12 min", "3.5 h".
std::string format_duration(double seconds);

Json record_json(const TuningRecord& record);

/// Adds how a record is judged: `us`, `bound`, `margin`, `support`, `speedups`, `next_evidence`.
void add_judgement(Json& record, const ReportRow& row);

/// Returns a record with the statistics of its session: trials by outcome, and the time of each
/// part.
Json result_json(const TuningResult& result);

}  // namespace kernwright::cli
