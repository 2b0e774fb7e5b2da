#include "cli/sweep/sweep_run.h"

#include <chrono>
#include <utility>

#include "cache/records/record_view.h"
#include "cli/output.h"
#include "cli/record_text.h"
#include "service/report/sweep_report.h"
#include "support/processes/threads.h"
#include "support/seconds_since.h"
#include "support/text.h"

namespace kernwright::cli {

namespace {

/// The table of finished problems. Rows come one by one, so the widths are for usual cells.
Table rows_as_they_come(std::size_t problems) {
  return Table({{"done", true, 2 * concat(problems).size() + 1},
                {"time", true, 8},
                {"speed-up", true},
                {"sure", false, std::string_view("unresolved B").size()},
                {"from", false, std::string_view("search").size()},
                {"problem"}});
}

std::string speedup_text(const ReportRow& row) {
  if (const Speedup* speedup = over_default(row)) {
    return speedup->level() ? "level" : fixed(speedup->times, 2);
  }
  return row.support == Support::default_kept ? "default" : "";
}

}  // namespace

std::vector<SweepResult> SweepRun::run() {
  if (!json_ && !problems_.empty()) {
    page_.print(rows_as_they_come(problems_.size()));
    ticker_.emplace([this] { return line(); });
  }
  {
    std::vector<Thread> threads;
    for (std::size_t i = 1; i < tuners_.size(); ++i) {
      Result<Thread> thread = Thread::start([this, i] { work(tuners_[i]); });
      if (!thread) {
        report_warning(concat("one GPU less is tuned on: ", thread.error().message));
        continue;
      }
      threads.push_back(*std::move(thread));
    }
    work(tuners_.front());
  }
  ticker_.reset();
  const MutexLock lock(mutex_);
  return std::move(results_);
}

void SweepRun::work(const Tuner& tuner) {
  for (;;) {
    std::size_t index = 0;
    {
      const MutexLock lock(mutex_);
      if (next_ == problems_.size()) return;
      index = next_++;
    }
    const auto start = std::chrono::steady_clock::now();
    const auto later = std::span<const Problem>(problems_).subspan(index + 1);
    SweepResult result = tuner(problems_[index], later, watch_);
    const MutexLock lock(mutex_);
    ++done_;
    if (!result.found) {
      ++made_;
      made_seconds_ += seconds_since(start);
    }
    const auto tell = [&]() KW_REQUIRES(mutex_) {
      if (!json_) {
        print_row(problems_[index], result);
      } else if (!result.record) {
        report({ErrorCode::internal, concat(problems_[index].text(), ": ", result.error)});
      }
    };
    if (ticker_) {
      ticker_->aside(tell);
    } else {
      tell();
    }
    results_[index] = std::move(result);
  }
}

void SweepRun::print_row(const Problem& asked, const SweepResult& result) {
  if (!result.record) {
    // The end of the sweep says why.
    Table table = rows_as_they_come(problems_.size());
    table.add(
        {concat(done_, "/", problems_.size()), "", "", "failed", "", page_.abridged(asked.text())});
    page_.print_rows(table);
    return;
  }
  const TuningRecord& record = *result.record;
  const Result<ReportRow> row = judge(record, service_);
  std::string problem = page_.abridged(record.key.problem);
  if (result.tuned_again) problem += " (tuned again: the record had trust C)";
  if (!result.unstored.empty()) problem += "; not stored";  // a warning has said why
  if (row && page_.verbose()) {
    problem += concat("; ", record.winner.choice.id(), "; ", to_string(row->support), "; ",
                      bound_text(*row), "; the next is ",
                      row->margin > 0 ? format_share(row->margin) : "not", " slower");
    if (!row->next.action.empty()) problem += concat("; next: ", row->next.text());
  }
  Table table = rows_as_they_come(problems_.size());
  table.add({concat(done_, "/", problems_.size()), format_us(winner_us(record)),
             row ? speedup_text(*row) : "", certainty(record), result.found ? "cache" : "search",
             std::move(problem)});
  page_.print_rows(table);
}

std::string SweepRun::line() const {
  const std::string search = watch_.line();
  const MutexLock lock(mutex_);
  std::string text = concat(done_, " of ", problems_.size(), " done");
  if (made_ > 0) {
    const double each = made_seconds_ / static_cast<double>(made_);
    const auto left = static_cast<double>(problems_.size() - done_);
    text += concat(", about ", format_duration(each * left / static_cast<double>(tuners_.size())),
                   " left");
  }
  return search.empty() ? text : concat(text, "; ", search);
}

}  // namespace kernwright::cli
