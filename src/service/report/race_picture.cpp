#include "service/report/race_picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "service/report/record_words.h"
#include "support/text.h"
#include "tuner/finals/decision.h"

namespace kernwright {
namespace {

// The columns of the picture, in its units: what a finalist is, in what it differs, the axis, its
// time.
constexpr double kWidth = 760;
constexpr double kNames = 0;
constexpr double kDifferences = 96;
constexpr double kAxisLeft = 330;
constexpr double kAxisRight = 676;
constexpr double kTop = 24;
constexpr double kRow = 24;
constexpr double kBelow = 42;
constexpr std::size_t kMostLetters = 34;  // of a difference
constexpr double kFar = 12;               // percent; what is beyond is told in words

/// That of a winner and of what ties with it, of a hue that is read on white and on black.
constexpr std::string_view kAccent = "#3d85d8";

/// The colours of text on a page that is light or dark, as the report has them.
constexpr std::string_view kColourScheme =
    "<style>svg{color:#1b1f23}@media(prefers-color-scheme:dark){svg{color:#e3e6e9}}</style>";

std::string ordinal(std::size_t n) {
  const bool teen = n / 10 % 10 == 1;
  const char* const ends[] = {"th", "st", "nd", "rd"};
  return concat(n, teen || n % 10 > 3 ? "th" : ends[n % 10]);
}

/// The first bytes of a text, no letter of which is cut in two.
std::string_view begin_of(std::string_view text, std::size_t bytes) {
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  return text.substr(0, bytes);
}

std::string_view short_template(std::string_view name) {
  return name.substr(name.find('/') + 1);  // npos + 1 is 0
}

/// A slowdown in percent.
struct Interval {
  double estimate;
  double low;
  double high;
};

Interval interval_of(const RankedConfiguration& ranked, const TuningRecord& record) {
  const auto percent = [](double log) { return 100 * std::expm1(log); };
  if (record.grade == RecordGrade::predicted) {
    const double first = record.winner.predicted_us;
    const double slower = first > 0 ? 100 * (ranked.predicted_us / first - 1) : 0;
    return {slower, slower, slower};
  }
  const Slowdown& slowdown = ranked.slowdown;
  return {percent(slowdown.estimate), percent(slowdown.low), percent(slowdown.high)};
}

/// From percent to the picture's units.
struct Axis {
  double low;
  double high;

  double at(double percent) const {
    return kAxisLeft + (percent - low) / (high - low) * (kAxisRight - kAxisLeft);
  }
  double step() const {
    const double raw = (high - low) / 5;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= raw) return factor * power;
    }
    return 10 * power;
  }
};

std::string number(double value) { return significant(std::round(value * 10) / 10, 6); }

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return concat("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2),
                "\" y2=\"", number(y2), "\" ", style, "/>");
}

std::string label(double x, double y, std::string_view text, std::string_view style = {}) {
  return concat("<text x=\"", number(x), "\" y=\"", number(y), "\" fill=\"currentColor\" ", style,
                ">", escaped_html(text), "</text>");
}

std::string scale(const Axis& axis, double bottom, bool predicted) {
  constexpr std::string_view kTick = "font-size=\"11\" opacity=\"0.7\" text-anchor=\"middle\"";
  std::string drawn;
  const double step = axis.step();
  const int last = static_cast<int>(std::floor(axis.high / step));
  for (int i = static_cast<int>(std::ceil(axis.low / step)); i <= last; ++i) {
    const double x = axis.at(i * step);
    drawn += line(x, kTop, x, bottom, "stroke=\"currentColor\" opacity=\"0.14\"");
    drawn += label(x, bottom + 15, concat(significant(i * step, 6), "\u00a0%"), kTick);
  }
  drawn += line(axis.at(0), kTop, axis.at(0), bottom,
                "stroke=\"currentColor\" opacity=\"0.7\" stroke-dasharray=\"2 3\"");
  return drawn +
         label(kAxisRight, bottom + 32,
               predicted ? "slower than the winner, predicted" : "slower than the fastest finalist",
               "font-size=\"11\" opacity=\"0.7\" text-anchor=\"end\"");
}

std::string mark(const Finalist& finalist, const Interval& interval, const Axis& axis, double y,
                 std::string_view colour) {
  if (interval.estimate > axis.high) {
    return concat(
        label(kAxisRight - 14, y + 4, concat(fixed(interval.estimate, 0), "\u00a0% slower"),
              "font-size=\"11\" opacity=\"0.7\" text-anchor=\"end\""),
        "<path d=\"M", number(kAxisRight - 9), " ", number(y - 4),
        "l6 4l-6 4\" fill=\"none\" stroke=\"currentColor\" opacity=\"0.7\"/>");
  }
  const std::string stroke = concat("stroke=\"", colour, "\" stroke-width=\"1.6\"");
  std::string drawn =
      line(axis.at(interval.low), y, std::min(kAxisRight, axis.at(interval.high)), y, stroke);
  for (const double end : {interval.low, interval.high}) {
    if (end <= axis.high) drawn += line(axis.at(end), y - 4, axis.at(end), y + 4, stroke);
  }
  const double x = axis.at(interval.estimate);
  if (finalist.is_default) {
    return concat(drawn, "<path d=\"M", number(x), " ", number(y - 5.5),
                  "l5.5 5.5l-5.5 5.5l-5.5 -5.5z\" fill=\"", colour, "\"/>");
  }
  return concat(drawn, "<circle cx=\"", number(x), "\" cy=\"", number(y), "\" r=\"4.5\" fill=\"",
                colour, "\"/>");
}

}  // namespace

std::vector<Finalist> finalists_of(const TuningRecord& record) {
  std::vector<Finalist> finalists = {{&record.winner, "", record.winner.traits.is_default}};
  bool has_default = record.winner.traits.is_default;
  for (const RankedConfiguration& ranked : record.runners_up) {
    const bool is_default =
        ranked.traits.is_default || (record.baseline && record.baseline->choice == ranked.choice);
    finalists.push_back({&ranked, ordinal(finalists.size() + 1), is_default});
    has_default = has_default || is_default;
  }
  for (Finalist& finalist : finalists) {
    if (finalist.ranked == &record.winner) finalist.role = "winner";
    if (finalist.is_default) finalist.role += ", default";
  }
  if (record.baseline && !has_default && record.baseline->choice != record.winner.choice) {
    finalists.push_back({&*record.baseline, "default", true});
  }
  return finalists;
}

std::string difference(const RankedConfiguration& finalist, const RankedConfiguration& winner) {
  const Choice& own = finalist.choice;
  if (own.kernel_template != winner.choice.kernel_template) {
    return std::string(short_template(own.kernel_template));
  }
  std::string differs;
  for (const auto& [name, value] : own.configuration.values()) {
    const Configuration& other = winner.choice.configuration;
    if (other.contains(name) && other.at(name) == value) continue;
    differs += concat(differs.empty() ? "" : " ", name, "=", value);
  }
  return differs.empty() ? "the same values" : differs;
}

std::string race_picture(const TuningRecord& record, PicturePlace place) {
  const std::vector<Finalist> finalists = finalists_of(record);
  if (finalists.size() < 2) return {};
  const bool predicted = record.grade == RecordGrade::predicted;
  Axis axis{-0.3, 3};
  std::vector<Interval> intervals;
  for (const Finalist& finalist : finalists) {
    const Interval& interval = intervals.emplace_back(interval_of(*finalist.ranked, record));
    axis.low = std::min(axis.low, interval.low);
    if (interval.high <= kFar) axis.high = std::max(axis.high, interval.high);
  }
  axis.low = std::max(axis.low, -kFar) - 0.03 * (axis.high - axis.low);  // room for a mark
  axis.high *= 1.06;
  const double bottom = kTop + kRow * static_cast<double>(finalists.size());
  const double height = bottom + kBelow;

  std::string svg = concat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(kWidth), " ",
      number(height), "\" width=\"", number(kWidth), "\" height=\"", number(height),
      "\" role=\"img\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\" "
      "style=\"max-width:100%;height:auto\"><title>",
      escaped_html(concat(predicted ? "Predicted times of " : "Finals of ", record.key.problem)),
      "</title>", place == PicturePlace::file ? kColourScheme : "");
  if (!predicted) {
    const double right = axis.at(100 * kEquivalence);
    svg += concat("<rect x=\"", number(axis.at(0)), "\" y=\"", number(kTop), "\" width=\"",
                  number(right - axis.at(0)), "\" height=\"", number(bottom - kTop), "\" fill=\"",
                  kAccent, "\" opacity=\"0.14\"/>");
    svg += label(axis.at(0), kTop - 8, "tie band", "font-size=\"11\" opacity=\"0.7\"");
  }
  svg += scale(axis, bottom, predicted);
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const RankedConfiguration& ranked = *finalists[i].ranked;
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    const std::string_view strong = i == 0 ? "font-weight=\"600\"" : "";
    svg += label(kNames, y + 4, finalists[i].role, strong);
    std::string differs = i == 0 ? std::string(short_template(ranked.choice.kernel_template))
                                 : difference(ranked, record.winner);
    if (differs.size() > kMostLetters) differs = concat(begin_of(differs, kMostLetters - 1), "…");
    svg += label(kDifferences, y + 4, differs,
                 "font-family=\"ui-monospace, monospace\" font-size=\"11\" opacity=\"0.8\"");
    const bool accented = i == 0 || (ranked.tied && !predicted);
    svg += mark(finalists[i], intervals[i], axis, y, accented ? kAccent : "currentColor");
    const Measurement in_turn = final_times(ranked, record.rounds).in_turn;
    svg += label(kWidth, y + 4,
                 us_text(in_turn.samples_us.empty() ? ranked.predicted_us : in_turn.median_us()),
                 concat(strong, " text-anchor=\"end\""));
  }
  return svg + "</svg>";
}

}  // namespace kernwright
