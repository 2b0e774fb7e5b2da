#include "cli/output.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <system_error>
#include <unistd.h>

#include "cache/fields/tree_writer.h"
#include "cache/records/record_view.h"
#include "cli/page.h"
#include "cli/record_text.h"
#include "service/report/sweep_report.h"
#include "support/file_descriptor.h"
#include "support/processes/channel.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/visible.h>

namespace kernwright::cli {
namespace {

std::mutex& stream_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// The error number of the first failed write to standard output; 0 if none failed. Under the
/// stream's mutex.
int write_error = 0;

void note_write(bool written) {
  if (!written && write_error == 0) write_error = errno == 0 ? EIO : errno;
}

/// Writes text that is visible already, and a line's end, on standard output.
void print_text(const std::string& text) {
  const std::lock_guard lock(stream_mutex());
  errno = 0;
  const int printed = std::printf("%s\n", text.c_str());
  note_write(printed >= 0 && std::fflush(stdout) == 0);
}

/// Writes a message on standard error. Lines after its first are indented, so that no text in it
/// looks like a message of its own.
void report_text(const char* begin, std::string_view message) {
  std::string text;
  for (const char c : visible_lines(message)) text += c == '\n' ? "\n  " : std::string(1, c);
  const std::lock_guard lock(stream_mutex());
  std::fprintf(stderr, "%s%s\n", begin, text.c_str());
}

// The text that the signal handler writes. It is set before the handler is installed, and never
// changes. It is a plain pointer, because a handler may only use what is safe in a signal.
const char* interrupt_text = nullptr;
std::size_t interrupt_size = 0;
constexpr int kInterruptedStatus = 128 + SIGINT;  // as shells report it

extern "C" void on_interrupt(int) {
  // If it cannot be written, there is nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, interrupt_text, interrupt_size);
  ::_exit(kInterruptedStatus);
}

Json ranked_json(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  Json json = tree_of(ranked.choice);
  json["artifact"] = ranked.artifact;
  json["predicted_us"] = ranked.predicted_us;
  json["registers"] = ranked.traits.resources.registers;
  json["spill_bytes"] = ranked.traits.resources.spill_bytes();
  if (!ranked.measurement.samples_us.empty()) {
    const auto [in_turn, alone] = final_times(ranked, rounds);
    json["median_us"] = in_turn.median_us();
    json["mad_us"] = in_turn.mad_us();
    json["samples"] = in_turn.samples_us.size();
    if (!alone.samples_us.empty()) json["alone_us"] = alone.median_us();
  }
  return json;
}

std::map<std::string, int> outcomes(const TuningResult& result) {
  std::map<std::string, int> counts;
  for (const Trial& trial : result.trials) ++counts[std::string(to_string(trial.outcome))];
  return counts;
}

}  // namespace

void print(std::string_view line) { print_text(visible(line)); }

void print_lines(std::string_view text) { print_text(visible_lines(text)); }

void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1) continue;
    // Opened in the wrong direction, so that using it fails, as using a closed one does.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor) return;
  }
}

Status close_output(Status status) {
  const std::lock_guard lock(stream_mutex());
  errno = 0;
  note_write(std::fclose(stdout) == 0);
  if (write_error == 0) return status;
  std::fprintf(stderr, "kernwright: cannot write to standard output: %s\n",
               std::generic_category().message(write_error).c_str());
  return Status::failed;
}

void print_json(const Json& json) {
  print_text(visible_json(json.dump(2, ' ', false, Json::error_handler_t::replace)));
}

Status report(const Error& error) {
  report_text("kernwright: ", error.message);
  return error.code == ErrorCode::invalid_argument ? Status::usage : Status::failed;
}

void report_warning(std::string_view message) { report_text("kernwright: warning: ", message); }

void show_status(std::string_view text) {
  const std::lock_guard lock(stream_mutex());
  // The line is cut, because a line that wraps cannot be replaced.
  const std::string shown = visible(text).substr(0, terminal_width(STDERR_FILENO) - 1);
  std::fprintf(stderr, "\r\033[K%s", visible(shown).c_str());
  std::fflush(stderr);
}

void end_on_interrupt(std::string_view message) {
  static std::string text;
  text = concat(isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "",
                "kernwright: interrupted: ", visible(message), "\n");
  interrupt_text = text.data();
  interrupt_size = text.size();
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

Result<std::string> captured_errors(const std::function<void()>& run) {
  KW_ASSIGN(const FileDescriptor file, memory_file("stderr", {}));
  const FileDescriptor kept(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!kept.valid() || ::dup2(file.get(), STDERR_FILENO) < 0) {
    return Error{ErrorCode::io,
                 concat("cannot keep standard error: ", std::generic_category().message(errno))};
  }
  run();
  ::dup2(kept.get(), STDERR_FILENO);
  constexpr std::size_t kMost = 1 << 16;
  std::string text(kMost, '\0');
  const ssize_t bytes = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

std::string format_us(double us) {
  struct Unit {
    const char* name;
    double us;
  };
  constexpr Unit kUnits[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
  if (us > 0 && us < 1e-3) return "under 1 ns";
  // A number that would be rounded to 1000 of a unit is printed as 1 of the next.
  constexpr double kNextUnit = 999.95;
  const Unit* unit = std::begin(kUnits);
  while (unit + 1 != std::end(kUnits) && us / unit->us >= kNextUnit) ++unit;
  const double value = us / unit->us;
  return concat(fixed(value, value < 9.995 ? 2 : 1), " ", unit->name);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  const char* const* unit = std::begin(kUnits);
  while (unit + 1 != std::end(kUnits) && bytes >= 999.95) {
    bytes /= 1000;
    ++unit;
  }
  return concat(fixed(bytes, unit == kUnits ? 0 : 1), " ", *unit);
}

std::string format_share(double share) {
  const double percent = 100 * share;
  if (percent > 0 && percent < 0.1) return "under 0.1 %";
  return concat(fixed(percent, percent > 0 && percent < 9.95 ? 1 : 0), " %");
}

std::string format_duration(double seconds) {
  if (seconds < 120) return concat(fixed(seconds, 0), " s");
  if (seconds < 7200) return concat(fixed(seconds / 60, 0), " min");
  return concat(fixed(seconds / 3600, 1), " h");
}

Json record_json(const TuningRecord& record) {
  Json json = tree_of(record.key);
  json["grade"] = to_string(record.grade);
  json["winner"] = ranked_json(record.winner, record.rounds);
  json["roofline_us"] = record.roofline_us;
  json["roofline_share"] = record.roofline_us / winner_us(record);
  json["candidates"] = record.candidates;
  json["measured"] = record.measured;
  json["device"] = record.device_name;
  json["uuid"] = record.device_uuid;
  json["environment"] = tree_of(record.environment);
  json["created"] = record.created;
  json["wall_seconds"] = record.wall_seconds;
  if (record.baseline) json["baseline"] = ranked_json(*record.baseline, record.rounds);
  json["runners_up"] = Json::array();
  for (const RankedConfiguration& ranked : record.runners_up) {
    json["runners_up"].push_back(ranked_json(ranked, record.rounds));
  }
  if (record.grade == RecordGrade::predicted) json["default_kept"] = default_kept(record);
  if (record.grade == RecordGrade::measured) {
    json["check"] = tree_of(record.check);
    for (const char* failed : {"first_mismatch", "deterministic"}) json["check"].erase(failed);
    json["verdict"] = to_string(record.verdict);
    json["trust"] = to_string(record.trust);
    json["audit"] = tree_of(record.audit.rows);
    json["search"] = {{"strategy", record.search.strategy},
                      {"seed", record.search.random_seed},
                      {"compiled", record.search.compiled},
                      {"failed", record.search.failed},
                      {"raced", record.search.raced},
                      {"warm_starts", record.search.warm_starts},
                      {"stop_reason", record.search.stop_reason},
                      {"hardly_looked", hardly_looked(record)},
                      {"regret_estimate", record.search.regret_estimate}};
    json.update(tree_of(record.launch_paths));
    json["settle_ms"] = record.settle_ms;
    json["idle_seconds"] = record.idle_seconds;
    json["longest_idle_ms"] = record.longest_idle_ms;
  }
  return json;
}

void add_judgement(Json& record, const ReportRow& row) {
  record["us"] = row.us;
  record["bound"] = tree_of(row.bound);
  record["margin"] = row.margin;
  record["support"] = to_string(row.support);
  record["speedups"] = Json::array();
  for (const Speedup& speedup : row.speedups) {
    record["speedups"].push_back({{"over", to_string(speedup.over)},
                                  {"times", speedup.times},
                                  {"low", speedup.low},
                                  {"high", speedup.high}});
  }
  record["next_evidence"] = row.next.text();
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

}  // namespace kernwright::cli
