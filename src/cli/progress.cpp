#include "cli/progress.h"

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <unistd.h>
#include <utility>

#include "cli/output.h"
#include "cli/page.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

constexpr double kSparseSeconds = 10;
constexpr int kInterruptedStatus = 128 + SIGINT;  // as shells report it

// The text that the signal handler writes. It is set before the handler is installed, and never
// changes. It is a plain pointer, because a handler may only use what is safe in a signal.
const char* interrupt_text = nullptr;
std::size_t interrupt_size = 0;

extern "C" void on_interrupt(int) {
  // If it cannot be written, there is nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, interrupt_text, interrupt_size);
  ::_exit(kInterruptedStatus);
}

/// A line about a search: the best so far, and the time left. `progress` is empty before it begins.
std::string search_line(const std::optional<TuningProgress>& progress, double seconds,
                        double budget) {
  const double left = budget - seconds;
  std::string text = !progress ? "preparing the search"
                               : concat(progress->measured, " of ", progress->candidates,
                                        " candidates measured, ", progress->failed, " failed");
  if (progress && progress->best_us > 0) text += concat(", best ", format_us(progress->best_us));
  return concat(text, left >= 1 ? concat(", ", format_duration(left), " left") : ", finishing");
}

}  // namespace

ProgressLine::ProgressLine(bool patient)
    : terminal_(isatty(STDERR_FILENO) == 1),
      printed_(patient && !terminal_ ? 0 : -kSparseSeconds) {}

void ProgressLine::clear() {
  if (terminal_ && dirty_) std::fprintf(stderr, "\r\033[K");
  dirty_ = false;
}

void ProgressLine::update(std::string_view text, double now_seconds) {
  const double interval = terminal_ ? 0.1 : kSparseSeconds;
  if (now_seconds - printed_ < interval) return;
  printed_ = now_seconds;
  dirty_ = true;
  // The line is cut, because a line that wraps cannot be replaced.
  if (terminal_) text = text.substr(0, terminal_width(STDERR_FILENO) - 1);
  std::fprintf(stderr, terminal_ ? "\r\033[K%.*s" : "%.*s\n", static_cast<int>(text.size()),
               text.data());
  std::fflush(stderr);
}

Ticker::Ticker(std::function<std::string(double seconds)> line) : text_(std::move(line)) {
  if (Result<Thread> thread = Thread::start([this] { run(); })) thread_ = *std::move(thread);
}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Ticker::run() {
  ProgressLine line(/*patient=*/true);
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!end_) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    line.update(text_(seconds), seconds);
    ended_.wait_for(lock, std::chrono::seconds(1), [this] { return end_; });
  }
}

void end_on_interrupt(std::string_view message) {
  static std::string text;
  text = concat(isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", "kernwright: interrupted: ", message,
                "\n");
  interrupt_text = text.data();
  interrupt_size = text.size();
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, bool quiet) {
  // The number of candidates to print; those that spill or do not compile are dropped.
  constexpr int kPredictCompiles = 4;
  // An invalid problem is reported before anything else.
  KW_TRY(service.bind(problem));
  std::mutex mutex;  // guards `seen`
  std::optional<TuningProgress> seen;
  std::optional<Ticker> ticker;
  if (!quiet) {
    options.progress = [&](const TuningProgress& progress) {
      const std::lock_guard lock(mutex);
      seen = progress;
    };
    ticker.emplace([&, budget = options.budget.seconds](double seconds) {
      const std::lock_guard lock(mutex);
      return concat(
          problem.operation(), ": ",
          service.has_device()
              ? search_line(seen, seconds, budget)
              : concat("ranking candidates and compiling the best",
                       seconds >= 1 ? concat(", ", format_duration(seconds)) : std::string()));
    });
  }
  if (!service.has_device()) {
    if (options.budget.trials == TuningBudget{}.trials) options.budget.trials = kPredictCompiles;
    return service.predict(problem, options.budget);
  }
  return service.tune(problem, std::move(options));
}

}  // namespace kernwright::cli
