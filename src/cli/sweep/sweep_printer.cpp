#include "cli/sweep/sweep_printer.h"

#include <utility>

#include "cache/records/record_view.h"
#include "cli/output.h"
#include "cli/record_text.h"
#include "service/report/sweep_report.h"
#include "support/mutex.h"
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

void print_row(const ServiceCore& service, const Page& page, const std::string& place, Table table,
               const Problem& asked, const SweepResult& result) {
  if (!result.record) {
    // The end of the sweep says why.
    table.add({place, "", "", "failed", "", page.abridged(asked.text())});
    page.print_rows(table);
    return;
  }
  const TuningRecord& record = *result.record;
  const Result<ReportRow> row = judge(record, service);
  std::string problem = page.abridged(record.key.problem);
  if (result.tuned_again) problem += " (tuned again: the record had trust C)";
  if (!result.unstored.empty()) problem += "; not stored";  // a warning has said why
  if (row && page.verbose()) {
    problem += concat("; ", record.winner.choice.id(), "; ", to_string(row->support), "; ",
                      bound_text(*row), "; the next is ",
                      row->margin > 0 ? format_share(row->margin) : "not", " slower");
    if (!row->next.action.empty()) problem += concat("; next: ", row->next.text());
  }
  table.add({place, format_us(winner_us(record)), row ? speedup_text(*row) : "", certainty(record),
             result.found ? "cache" : "search", std::move(problem)});
  page.print_rows(table);
}

}  // namespace

std::vector<SweepResult> run_and_print(const ServiceCore& service,
                                       std::span<const Problem> normalized,
                                       std::span<const SweepTuner> tuners, const SearchWatch& watch,
                                       const Page& page) {
  const std::size_t problems = normalized.size();
  Mutex mutex;  // guards the counts
  std::size_t done = 0;
  std::size_t made = 0;     // finished problems that were not in the cache
  double made_seconds = 0;  // the time that these took
  page.print(rows_as_they_come(problems));
  Ticker ticker([&] {
    const std::string search = watch.line();
    const MutexLock lock(mutex);
    std::string text = concat(done, " of ", problems, " done");
    if (made > 0) {
      const double left = made_seconds / static_cast<double>(made) *
                          static_cast<double>(problems - done) / static_cast<double>(tuners.size());
      text += concat(", about ", format_duration(left), " left");
    }
    return search.empty() ? text : concat(text, "; ", search);
  });
  const auto tell = [&](std::size_t index, const SweepResult& result, double seconds) {
    {
      const MutexLock lock(mutex);
      ++done;
      if (!result.found) {
        ++made;
        made_seconds += seconds;
      }
    }
    ticker.aside([&] {
      print_row(service, page, concat(done, "/", problems), rows_as_they_come(problems),
                normalized[index], result);
    });
  };
  return run_sweep(normalized, tuners, tell, report_warning);
}

}  // namespace kernwright::cli
