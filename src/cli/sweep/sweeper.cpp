#include "cli/sweep/sweeper.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "cache/fields/json_fields.h"
#include "cli/output.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

/// How long a process may take to end after its channel is closed.
constexpr double kEndSeconds = 10;

}  // namespace

Sweeper::Sweeper(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {
  static_cast<void>(start());  // tried again at the first request
}

Result<void> Sweeper::start() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{ErrorCode::io, concat("/proc/self/exe: ", error.message())};
  KW_ASSIGN(
      Subprocess started,
      Subprocess::spawn({.program = program, .arguments = arguments_, .removed_variables = {}}));
  process_ = std::move(started);
  return {};
}

SweepResult Sweeper::sweep(const Problem& problem) {
  Result<SweepResult> result = ask(problem);
  if (result) return *std::move(result);
  SweepResult failed;
  failed.error = result.error().message;
  if (process_) {
    const std::optional<ExitStatus> ended = process_->wait(deadline_in(kEndSeconds));
    failed.error = concat("its process ended (", ended ? ended->text() : failed.error,
                          "): ", process_->last_words());
    process_.reset();
  }
  return failed;
}

Result<SweepResult> Sweeper::ask(const Problem& problem) {
  if (!process_) {
    KW_TRY(start());
  }
  Channel& channel = process_->channel();
  KW_TRY(channel.send(problem.text()));
  for (;;) {
    KW_ASSIGN(const Message message, channel.receive());
    std::string warning;
    const Result<void> is_warning = parse_fields(
        message.text, "warning", [&](FieldReader& fields) { fields.field("warning", warning); });
    if (!is_warning) return parse_sweep_result(message.text);
    report_warning(warning);
  }
}

}  // namespace kernwright::cli
