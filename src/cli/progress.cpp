#include "cli/progress.h"

#include <unistd.h>
#include <utility>

#include "cli/output.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

/// Updates that come sooner than this are left out.
constexpr double kLeastSeconds = 0.1;
/// The time to the next look at the text of a ticker: while it has none, and later.
constexpr std::chrono::milliseconds kSoon(20);
constexpr std::chrono::milliseconds kUsual(1000);

}  // namespace

ProgressLine::ProgressLine()
    : shown_(isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1), printed_(-kLeastSeconds) {}

void ProgressLine::clear() {
  if (dirty_) show_status({});
  dirty_ = false;
}

void ProgressLine::update(std::string_view text, double seconds) {
  if (!shown_ || seconds - printed_ < kLeastSeconds) return;
  printed_ = seconds;
  dirty_ = true;
  show_status(text);
}

Ticker::Ticker(std::function<std::string()> line) : text_(std::move(line)) {
  if (Result<Thread> thread = Thread::start([this] { run(); })) thread_ = *std::move(thread);
}

Ticker::~Ticker() {
  {
    const MutexLock lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Ticker::aside(const std::function<void()>& print) {
  const MutexLock lock(mutex_);
  line_.clear();
  print();
}

void Ticker::run() {
  const auto start = std::chrono::steady_clock::now();
  const MutexLock lock(mutex_);
  while (!end_) {
    mutex_.unlock();
    const std::string text = text_();
    mutex_.lock();
    if (end_) return;
    if (!text.empty()) line_.update(text, seconds_since(start));
    ended_.wait_for(mutex_, text.empty() ? kSoon : kUsual);
  }
}

void SearchWatch::begin(const Problem& problem, bool measures, TuningOptions& options) {
  const MutexLock lock(mutex_);
  operation_ = problem.operation();
  measures_ = measures;
  budget_seconds_ = options.budget.seconds;
  start_ = std::chrono::steady_clock::now();
  seen_.reset();
  options.progress = [this](const TuningProgress& progress) {
    const MutexLock seen(mutex_);
    seen_ = progress;
  };
}

void SearchWatch::end() {
  const MutexLock lock(mutex_);
  operation_.clear();
}

std::string SearchWatch::line() const {
  const MutexLock lock(mutex_);
  if (operation_.empty()) return {};
  const double seconds = seconds_since(start_);
  if (!measures_) {
    return concat(operation_, ": ranking candidates and compiling the best",
                  seconds >= 1 ? concat(", ", format_duration(seconds)) : std::string());
  }
  std::string text = concat(operation_, ": ");
  if (!seen_) {
    text += "preparing the search";
  } else {
    text += concat(seen_->measured, " of ", counted(seen_->candidates, "candidate"));
    if (seen_->best_us > 0) text += concat(", best ", format_us(seen_->best_us));
  }
  const double left = budget_seconds_ - seconds;
  return concat(text, left >= 1 ? concat(", ", format_duration(left), " left") : ", finishing");
}

Result<TuningResult> tune_or_predict(ServiceCore& service, const Problem& problem,
                                     TuningOptions options, SearchWatch& watch) {
  // The number of candidates to print; those that spill or do not compile are dropped.
  constexpr int kPredictCompiles = 4;
  // An invalid problem is reported before anything else.
  KW_TRY(service.bind(problem));
  watch.begin(problem, service.has_device(), options);
  if (!service.has_device() && options.budget.trials == TuningBudget{}.trials) {
    options.budget.trials = kPredictCompiles;
  }
  Result<TuningResult> result = [&]() -> Result<TuningResult> {
    if (!service.has_device()) return service.predict(problem, options.budget);
    KW_ASSIGN(TuningResult tuned, service.tune(problem, std::move(options)));
    return tuned;
  }();
  watch.end();
  return result;
}

}  // namespace kernwright::cli
