#include "service/report/record_words.h"

#include <algorithm>
#include <cmath>

#include "cache/records/record_view.h"
#include "model/result/evidence.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::string_view kSpace = "\u00a0";  // a line never ends at it

/// Returns a number with so many significant digits, without an exponent.
std::string digits(double value, int count) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return "–";
  const int decimals = count - 1 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fixed(value, std::clamp(decimals, 0, 8));
}

/// "0.2 to 0.8 %".
std::string range_text(const Slowdown& slowdown) {
  const auto number = [](double log) {
    const double percent = 100 * std::expm1(log);
    return concat(percent < -0.05 ? "−" : "", fixed(std::abs(percent), 1));
  };
  return concat(number(slowdown.low), " to ", number(slowdown.high), kSpace, "%");
}

std::string verdict_words(const TuningRecord& record) {
  const std::string rule = tie_rule(record);
  switch (record.verdict) {
    case Verdict::win: {
      if (record.runners_up.empty()) return "A win: nobody else reached the finals.";
      const Slowdown& second = record.runners_up.front().slowdown;
      return concat("A win: every other finalist is slower. The runner-up is ",
                    percent_text(second.estimate), " slower (", range_text(second), ").");
    }
    case Verdict::tie:
      return concat(
          "A tie: the finalists in the band cannot be told apart. Among them a rule decides: ",
          rule.empty() ? "it is the fastest" : rule, ".");
    case Verdict::unresolved:
      break;
  }
  if (hardly_looked(record)) {
    return concat("Unresolved: the search has hardly looked. ", tried_words(record), ".");
  }
  const bool disturbed =
      4 * record.rounds.dropped.size() > record.winner.measurement.samples_us.size();
  return concat(
      "Unresolved: ",
      disturbed ? "more than a quarter of the rounds were disturbed."
                : "the time was over before it was known who is fastest.",
      rule.empty() ? "" : concat(" Among those that may be, a rule decides: ", rule, "."));
}

std::string bound_words(const TuningRecord& record, const ReportRow& row) {
  if (*row.bound == Bound::launch) {
    return "What it costs is the launch: less work would not make it faster.";
  }
  return concat("It reaches ", share_text(row.roofline_share), " of its roof, ",
                us_text(record.roofline_us), ", which ",
                *row.bound == Bound::memory ? "the memory" : "arithmetic", " sets.");
}

}  // namespace

std::string us_text(double us) {
  if (!(us > 0)) return "–";
  if (us < 1) return concat(digits(1000 * us, 3), kSpace, "ns");
  if (us < 1000) return concat(digits(us, us < 10 ? 3 : 4), kSpace, "µs");
  return concat(digits(us / 1000, 4), kSpace, "ms");
}

std::string percent_text(double log_ratio) {
  const double percent = 100 * std::expm1(log_ratio);
  const double size = std::abs(percent);
  if (size < 0.05) return concat("0", kSpace, "%");
  return concat(percent < 0 ? "−" : "", fixed(size, size < 10 ? 1 : 0), kSpace, "%");
}

std::string share_text(double share) {
  return concat(digits(100 * share, share < 0.1 ? 2 : share < 1 ? 3 : 4), kSpace, "%");
}

std::string times_text(double times) { return concat(digits(times, 3), "×"); }

std::string bytes_text(double bytes) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}};
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes) return concat(digits(bytes / unit.bytes, 3), kSpace, unit.name);
  }
  return concat(fixed(bytes, 0), kSpace, "B");
}

std::string launch_words(const LaunchTimes& paths) {
  const auto best = best_path(paths.times);
  if (best == paths.times.end()) return {};
  const auto shortest = std::ranges::min_element(paths.times, {}, &PathTime::period_us);
  std::string words = concat(to_string(best->path), ": ");
  if (best->period_us <= shortest->period_us) {
    words += "the shortest back to back";
  } else {
    words += concat("back to back within ", fixed(100 * kPathTie, 0), " % of ",
                    to_string(shortest->path), ", and ",
                    best->host_us < shortest->host_us ? "cheaper" : "as cheap", " for the host");
  }
  if (paths.best && *paths.best != best->path) {
    words += concat("; programs get ", to_string(*paths.best),
                    ", which the record names, as its rounds did not tell them apart");
  }
  return words;
}

std::string_view support_words(Support support) {
  return support == Support::default_kept ? "default kept" : to_string(support);
}

std::vector<std::string> record_words(const TuningRecord& record, const ReportRow& row) {
  std::vector<std::string> words;
  if (record.grade == RecordGrade::predicted) {
    words.push_back(concat("A prediction: ", us_text(row.us),
                           " by the cost model, which orders candidates. Nothing was measured."));
  } else {
    words.push_back(verdict_words(record));
    if (const Speedup* speedup = over_default(row)) {
      words.push_back(speedup->low > 1
                          ? concat("The default takes ", times_text(speedup->times),
                                   " its time (at least ", times_text(speedup->low), ").")
                          : concat("It is not clearly faster than the default (",
                                   times_text(speedup->times), ")."));
    } else if (record.winner.traits.is_default) {
      words.emplace_back("The winner is the default itself.");
    }
  }
  if (row.bound) words.push_back(bound_words(record, row));
  if (!row.next.action.empty()) words.push_back(concat("Next: ", row.next.text(), "."));
  return words;
}

}  // namespace kernwright
