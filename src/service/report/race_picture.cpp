#include "service/report/race_picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "cache/records/record_view.h"
#include "service/report/record_words.h"
#include "support/text.h"
#include "tuner/finals/decision.h"

namespace kernwright {
namespace {

// Each finalist has a line of text, and its mark on the axis below. Places across the picture are
// shares of its width, in percent, so that on a page it is as wide as there is room, and its
// letters keep their size.
constexpr double kFileWidth = 760;
constexpr double kAxisLeft = 3;
constexpr double kAxisRight = 96;
constexpr double kDifferences = 104;  // from the left, in pixels
constexpr double kTop = 24;
constexpr double kLine = 14;
constexpr double kMarkRow = 22;
constexpr double kBelow = 42;
constexpr std::size_t kMostLetters = 28;  // in a line: a phone has room for them beside the time
constexpr double kFar = 12;               // percent; values beyond are told in words

/// The colour of a winner and of its ties, of a hue that can be read on white and on black.
constexpr std::string_view kAccent = "#3d85d8";

/// The colours of text on a page that is light or dark, as the report has them.
constexpr std::string_view kColourScheme =
    "<style>svg{color:#1b1f23}@media(prefers-color-scheme:dark){svg{color:#e3e6e9}}</style>";

std::string ordinal(std::size_t n) {
  const bool teen = n / 10 % 10 == 1;
  const char* const ends[] = {"th", "st", "nd", "rd"};
  return concat(n, teen || n % 10 > 3 ? "th" : ends[n % 10]);
}

/// Returns the first bytes of a text, without cutting a letter in two; all of a short text.
std::string_view begin_of(std::string_view text, std::size_t bytes) {
  if (bytes >= text.size()) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  return text.substr(0, bytes);
}

/// Returns a text in lines of `kMostLetters` at most, broken between words if possible.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (text.size() > kMostLetters) {
    std::size_t end = text.rfind(' ', kMostLetters);
    if (end == std::string_view::npos || end == 0) end = begin_of(text, kMostLetters).size();
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  lines.push_back(text);
  return lines;
}

std::string_view short_template(std::string_view name) {
  return name.substr(name.find('/') + 1);  // npos + 1 is 0
}

/// Returns the parameters of a configuration, with those first that have the most values among the
/// finalists of its template. A parameter that has the same value in all of them is left out.
std::vector<std::string> telling_parameters(const Choice& own,
                                            const std::vector<Finalist>& finalists) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const auto& [name, value] : own.configuration.values()) {
    std::set<std::optional<std::int64_t>> values;
    for (const Finalist& finalist : finalists) {
      const Choice& other = finalist.ranked->choice;
      if (other.kernel_template != own.kernel_template) continue;
      const bool has = other.configuration.contains(name);
      values.insert(has ? std::optional(other.configuration.at(name)) : std::nullopt);
    }
    if (values.size() > 1) ranked.emplace_back(values.size(), name);
  }
  std::ranges::stable_sort(ranked, std::greater(), &decltype(ranked)::value_type::first);
  std::vector<std::string> names;
  for (auto& [count, name] : ranked) names.push_back(std::move(name));
  return names;
}

std::string difference(const Finalist& finalist, const std::vector<Finalist>& finalists) {
  const Choice& own = finalist.ranked->choice;
  const Choice& winner = finalists.front().ranked->choice;
  const bool is_winner = finalist.ranked == finalists.front().ranked;
  const bool same_template = own.kernel_template == winner.kernel_template && !is_winner;
  std::string text(same_template ? "" : short_template(own.kernel_template));
  if (is_winner) return text;
  for (const std::string& name : telling_parameters(own, finalists)) {
    const std::int64_t value = own.configuration.at(name);
    const bool as_winner = same_template && winner.configuration.contains(name) &&
                           winner.configuration.at(name) == value;
    if (!as_winner) text += concat(text.empty() ? "" : " ", name, "=", value);
  }
  return text.empty() ? "the same values" : text;
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

/// Maps a slowdown in percent to a share of the picture's width.
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

/// Draws with places across in percent of the width: as they are, or in pixels of a fixed width.
class Pen {
 public:
  explicit Pen(PicturePlace place) : fluid_(place == PicturePlace::page) {}

  std::string across(double share) const {
    return fluid_ ? concat(number(share), "%") : number(share / 100 * kFileWidth);
  }
  std::string line(double x1, double y1, double x2, double y2, std::string_view style) const {
    return concat("<line x1=\"", across(x1), "\" y1=\"", number(y1), "\" x2=\"", across(x2),
                  "\" y2=\"", number(y2), "\" ", style, "/>");
  }
  std::string label(std::string_view x, double y, std::string_view text,
                    std::string_view style = {}) const {
    return concat("<text x=\"", x, "\" y=\"", number(y), "\" fill=\"currentColor\" ", style, ">",
                  escaped_html(text), "</text>");
  }
  /// Returns a path that begins at a place.
  std::string path(double x, double y, std::string_view steps, std::string_view style) const {
    return concat("<svg x=\"", across(x), "\" y=\"", number(y),
                  "\" overflow=\"visible\"><path d=\"M0 0", steps, "\" ", style, "/></svg>");
  }

 private:
  bool fluid_;
};

constexpr std::string_view kTick = "font-size=\"11\" opacity=\"0.7\"";

std::string scale(const Pen& pen, const Axis& axis, double bottom, bool predicted) {
  std::string drawn;
  const double step = axis.step();
  const int last = static_cast<int>(std::floor(axis.high / step));
  for (int i = static_cast<int>(std::ceil(axis.low / step)); i <= last; ++i) {
    const double x = axis.at(i * step);
    drawn += pen.line(x, kTop, x, bottom, "stroke=\"currentColor\" opacity=\"0.14\"");
    drawn += pen.label(pen.across(x), bottom + 15, concat(significant(i * step, 6), "\u00a0%"),
                       concat(kTick, " text-anchor=\"middle\""));
  }
  drawn += pen.line(axis.at(0), kTop, axis.at(0), bottom,
                    "stroke=\"currentColor\" opacity=\"0.7\" stroke-dasharray=\"2 3\"");
  return drawn + pen.label(pen.across(kAxisRight), bottom + 32,
                           predicted ? "slower than the winner, predicted"
                                     : "slower than the fastest finalist",
                           concat(kTick, " text-anchor=\"end\""));
}

std::string mark(const Pen& pen, const Finalist& finalist, const Interval& interval,
                 const Axis& axis, double y, std::string_view colour) {
  if (interval.estimate > axis.high) {
    return concat(pen.label(pen.across(kAxisRight - 2), y + 4,
                            concat(fixed(interval.estimate, 0), "\u00a0% slower"),
                            concat(kTick, " text-anchor=\"end\"")),
                  pen.path(kAxisRight - 1, y - 4, "l6 4l-6 4",
                           "fill=\"none\" stroke=\"currentColor\" opacity=\"0.7\""));
  }
  const std::string stroke = concat("stroke=\"", colour, "\" stroke-width=\"1.6\"");
  std::string drawn =
      pen.line(axis.at(interval.low), y, std::min(kAxisRight, axis.at(interval.high)), y, stroke);
  for (const double end : {interval.low, interval.high}) {
    if (end <= axis.high) drawn += pen.line(axis.at(end), y - 4, axis.at(end), y + 4, stroke);
  }
  const double x = axis.at(interval.estimate);
  const std::string fill = concat("fill=\"", colour, "\"");
  if (finalist.is_default) {
    return drawn + pen.path(x, y - 5.5, "l5.5 5.5l-5.5 5.5l-5.5 -5.5z", fill);
  }
  return concat(drawn, "<circle cx=\"", pen.across(x), "\" cy=\"", number(y), "\" r=\"4.5\" ", fill,
                "/>");
}

}  // namespace

std::vector<Finalist> finalists_of(const TuningRecord& record) {
  std::vector<Finalist> finalists = {{&record.winner, "", record.winner.traits.is_default, ""}};
  bool has_default = record.winner.traits.is_default;
  for (const RankedConfiguration& ranked : record.runners_up) {
    const bool is_default =
        ranked.traits.is_default || (record.baseline && record.baseline->choice == ranked.choice);
    finalists.push_back({&ranked, ordinal(finalists.size() + 1), is_default, ""});
    has_default = has_default || is_default;
  }
  for (Finalist& finalist : finalists) {
    if (finalist.ranked == &record.winner) finalist.role = "winner";
    if (finalist.is_default) finalist.role += ", default";
  }
  if (record.baseline && !has_default && record.baseline->choice != record.winner.choice) {
    finalists.push_back({&*record.baseline, "default", true, ""});
  }
  for (Finalist& finalist : finalists) finalist.differs = difference(finalist, finalists);
  return finalists;
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
  double bottom = kTop;
  for (const Finalist& finalist : finalists) {
    bottom += kLine * static_cast<double>(lines_of(finalist.differs).size()) + kMarkRow;
  }
  const std::string height = number(bottom + kBelow);
  const Pen pen(place);

  std::string svg = concat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" ",
      place == PicturePlace::page
          ? concat("width=\"100%\" height=\"", height, "\" style=\"overflow:visible\"")
          : concat("viewBox=\"0 0 ", number(kFileWidth), " ", height, "\" width=\"",
                   number(kFileWidth), "\" height=\"", height,
                   "\" style=\"max-width:100%;height:auto\""),
      " role=\"img\" font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"12\"><title>",
      escaped_html(concat(predicted ? "Predicted times of " : "Finals of ", record.key.problem)),
      "</title>", place == PicturePlace::file ? kColourScheme : "");
  if (!predicted) {
    const double left = axis.at(0);
    const double right = axis.at(100 * kEquivalence);
    svg += concat("<rect x=\"", pen.across(left), "\" y=\"", number(kTop), "\" width=\"",
                  pen.across(right - left), "\" height=\"", number(bottom - kTop), "\" fill=\"",
                  kAccent, "\" opacity=\"0.14\"/>");
    svg += pen.label(pen.across(left), kTop - 8, "tie band", kTick);
  }
  svg += scale(pen, axis, bottom, predicted);
  double y = kTop;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const RankedConfiguration& ranked = *finalists[i].ranked;
    const std::string_view strong = i == 0 ? "font-weight=\"600\"" : "";
    svg += pen.label("0", y + kLine, finalists[i].role, strong);
    const Measurement in_turn = final_times(ranked, record.rounds).in_turn;
    svg +=
        pen.label(pen.across(100), y + kLine,
                  us_text(in_turn.samples_us.empty() ? ranked.predicted_us : in_turn.median_us()),
                  concat(strong, " text-anchor=\"end\""));
    for (const std::string_view line : lines_of(finalists[i].differs)) {
      y += kLine;
      svg += pen.label(number(kDifferences), y, line,
                       "font-family=\"ui-monospace, monospace\" font-size=\"11\" opacity=\"0.8\"");
    }
    const bool accented = i == 0 || (ranked.tied && !predicted);
    svg += mark(pen, finalists[i], intervals[i], axis, y + kMarkRow / 2,
                accented ? kAccent : "currentColor");
    y += kMarkRow;
  }
  return svg + "</svg>";
}

}  // namespace kernwright
