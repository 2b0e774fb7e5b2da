#include "service/report/record_card.h"

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/records/record_view.h"
#include "service/report/race_picture.h"
#include "service/report/record_words.h"
#include "service/report/report_data.h"
#include "service/serve/answering_record.h"
#include "service/serve/guarded.h"
#include "support/text.h"
#include "support/try.h"
#include <kernwright/service.h>

namespace kernwright {
namespace {

constexpr std::string_view kMono = "font-family:ui-monospace,monospace;font-size:12px";
constexpr std::string_view kSoft = "opacity:0.72";

// Hues that can be seen on white and on black. The words beside them say the same.
constexpr std::string_view kGood = "#2f9e68";
constexpr std::string_view kCalm = "#3d85d8";
constexpr std::string_view kWarn = "#b8801f";
constexpr std::string_view kBad = "#d9584b";
constexpr std::string_view kMute = "#8a9199";

std::string element(std::string_view tag, std::string_view style, std::string_view content) {
  return concat("<", tag, style.empty() ? "" : concat(" style=\"", style, "\""), ">", content, "</",
                tag, ">");
}

std::string chip(std::string_view word, std::string_view colour) {
  return concat(
      "<span style=\"white-space:nowrap;margin-right:14px\"><span aria-hidden=\"true\" "
      "style=\"color:",
      colour, "\">●</span> ", word, "</span>");
}

std::string_view colour_of(Verdict verdict) {
  return verdict == Verdict::win ? kGood : verdict == Verdict::tie ? kCalm : kWarn;
}

std::string_view colour_of(Trust trust) {
  return trust == Trust::a ? kGood : trust == Trust::b ? kWarn : kBad;
}

std::string_view colour_of(Support support) {
  switch (support) {
    case Support::supported:
      return kGood;
    case Support::measured:
      return kCalm;
    case Support::caveated:
      return kWarn;
    case Support::default_kept:
      break;
  }
  return kMute;
}

std::string chips(const TuningRecord& record, const ReportRow& row) {
  const std::string support = chip(support_words(row.support), colour_of(row.support));
  if (record.grade == RecordGrade::predicted) return concat(chip("predicted", kMute), support);
  return concat(chip(to_string(record.verdict), colour_of(record.verdict)),
                chip(concat("trust ", to_string(record.trust)), colour_of(record.trust)), support);
}

/// Returns names with their values, in lines that break between pairs.
std::string pairs(const std::vector<std::pair<std::string, std::string>>& values) {
  std::string items;
  for (const auto& [name, value] : values) {
    items += concat("<span style=\"display:inline-block;margin-right:18px\">",
                    element("span", kSoft, escaped_html(name)), " ",
                    element("span", kMono, escaped_html(value)), "</span> ");
  }
  return element("div", "", items);
}

/// Returns the parameters that the winner is launched with.
std::string launch_parameters(const TuningRecord& record) {
  const RankedConfiguration& winner = record.winner;
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const auto& [name, value] : winner.choice.configuration.values()) {
    parameters.emplace_back(name, concat(value));
  }
  std::vector<std::pair<std::string, std::string>> resources;
  const auto add_bytes = [&resources](const char* name, double bytes) {
    if (bytes > 0) resources.emplace_back(name, bytes_text(bytes));
  };
  const Traits& traits = winner.traits;
  if (traits.resources.registers > 0) {
    resources.emplace_back("registers", concat(traits.resources.registers));
  }
  add_bytes("shared memory", static_cast<double>(traits.smem_bytes));
  add_bytes("spills", static_cast<double>(traits.resources.spill_bytes()));
  add_bytes("workspace", static_cast<double>(traits.workspace_bytes));
  if (const std::string best = launch_words(record.launch_paths); !best.empty()) {
    resources.emplace_back("best launched by", best);
  }
  return concat(element("div", concat(kMono, ";margin-top:8px"),
                        element("b", "", escaped_html(winner.choice.kernel_template))),
                pairs(parameters), pairs(resources));
}

std::string cells(std::string_view tag, std::initializer_list<std::string> texts) {
  std::string row;
  for (const std::string& text : texts) {
    row += element(tag, "text-align:left;padding:1px 14px 1px 0", escaped_html(text));
  }
  return element("tr", "", row);
}

/// Returns the race as a table, folded.
std::string race_table(const TuningRecord& record) {
  const bool predicted = record.grade == RecordGrade::predicted;
  std::string rows =
      predicted ? cells("th", {"", "predicted", "candidate"})
                : cells("th", {"", "time", "slower by", "at least", "at most", "candidate"});
  for (const Finalist& finalist : finalists_of(record)) {
    const RankedConfiguration& ranked = *finalist.ranked;
    if (predicted) {
      rows += cells("td", {finalist.role, us_text(ranked.predicted_us), ranked.choice.id()});
      continue;
    }
    const Measurement in_turn = final_times(ranked, record.rounds).in_turn;
    rows +=
        cells("td", {finalist.role, in_turn.samples_us.empty() ? "–" : us_text(in_turn.median_us()),
                     percent_text(ranked.slowdown.estimate), percent_text(ranked.slowdown.low),
                     percent_text(ranked.slowdown.high), ranked.choice.id()});
  }
  return concat("<details><summary style=\"cursor:pointer;opacity:0.72\">Table</summary>",
                element("div", "overflow-x:auto", element("table", kMono, rows)), "</details>");
}

std::string origin(const TuningRecord& record) {
  std::string text = concat(record.grade == RecordGrade::predicted ? "for " : "on ",
                            record.device_name, " (", record.key.sku, ", ", record.key.target, ")");
  if (record.key.policy.l2 != L2State::cold) {
    text += concat(" with a ", to_string(record.key.policy.l2), " L2");
  }
  if (!record.environment.driver.empty()) text += concat(", driver ", record.environment.driver);
  return concat(text, ", ", record.created);
}

}  // namespace

std::string record_card(const TuningRecord& record, const ReportRow& row) {
  std::string words;
  for (const std::string& sentence : record_words(record, row)) {
    words += concat(words.empty() ? "" : " ", sentence);
  }
  const std::string race = race_picture(record, PicturePlace::page);
  return concat(
      "<div class=\"kernwright-record\" style=\"max-width:760px;line-height:1.5;font-size:13px;"
      "font-family:ui-sans-serif,system-ui,sans-serif\">",
      element("div", concat(kMono, ";overflow-wrap:anywhere"), escaped_html(record.key.problem)),
      "<div>", element("b", "font-size:22px;margin-right:18px", us_text(row.us)),
      chips(record, row), "</div>", element("div", "", escaped_html(words)),
      launch_parameters(record),
      race.empty() ? "" : concat(element("div", "margin-top:10px", race), race_table(record)),
      element("div", concat(kSoft, ";margin-top:6px"), escaped_html(origin(record))), "</div>\n");
}

Result<std::string> Service::record(const Problem& problem, RecordForm form) const {
  return guarded([&]() -> Result<std::string> {
    KW_ASSIGN(const BoundProblem bound, core_->bind(problem));
    KW_ASSIGN(AnsweringRecord answer, answering_record(*core_, bound));
    if (form == RecordForm::json) {
      return record_data(with_trials(std::move(answer.record), answer.file), core_->catalog());
    }
    return record_card(answer.record, report_row(answer.record, &bound, core_->profile()));
  });
}

}  // namespace kernwright
