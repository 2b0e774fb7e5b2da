#include "cli/counter_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/fields/tree_writer.h"
#include "service/report/counter_report.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

/// One set of counters, and the findings in it.
struct Judged {
  const CounterSet* set = nullptr;
  CounterReport report;
  std::string name;  ///< "winner cold"
};

std::vector<Judged> judge_counters(const TuningRecord& record, const ServiceCore& service) {
  const Result<Problem> problem = Problem::parse(record.key.problem);
  if (!problem) return {};
  const Result<BoundProblem> bound = service.bind(*problem);
  if (!bound) return {};
  std::vector<Judged> judged;
  for (const CounterSet& set : record.counters) {
    const std::string role = role_in(record, set.choice);
    if (role.empty()) continue;
    judged.push_back({&set, counter_report(set, record, *bound, service.profile()),
                      concat(role, " ", to_string(set.cache))});
  }
  return judged;
}

std::string source_text(const CounterSet& set) {
  std::string text = set.source == CounterSource::cupti ? "by CUPTI" : "by Nsight Compute";
  if (!set.version.empty()) text += concat(" ", set.version);
  text += set.mode == CounterMode::kernel_replay ? ", of one launch alone" : ", of a train";
  if (set.passes > 0) text += concat(", ", set.passes, " passes");
  return text;
}

/// Returns true if a kernel's value of the counter cannot be believed.
bool is_marked(const CounterSet& set, std::string_view counter) {
  for (const CountedKernel& kernel : set.kernels) {
    for (const CounterValue& value : kernel.values) {
      if (value.name == counter && value.value && !value.reason.empty()) return true;
    }
  }
  return false;
}

std::string share_cell(const CounterSet& set, std::string_view counter) {
  const std::optional<double> share = set.mean(counter);
  if (!share) return "-";
  return concat(format_share(*share / 100), is_marked(set, counter) ? " !" : "");
}

void add_row(Table& table, const Judged& row) {
  const CounterSet& set = *row.set;
  table.add({row.name,
             row.report.time_us
                 ? concat(format_us(*row.report.time_us), row.report.time_differs ? " !" : "")
                 : "-",
             share_cell(set, kDramShareCounter),
             row.report.measured_bytes ? format_bytes(*row.report.measured_bytes) : "-",
             share_cell(set, kL2HitCounter), share_cell(set, kTensorShareCounter),
             share_cell(set, kOccupancyCounter), share_cell(set, kIssueCounter)});
}

/// Returns the winner in the state of the L2 in which it was raced; else the first.
const Judged& foremost(const std::vector<Judged>& rows, const TuningRecord& record) {
  const auto found = std::ranges::find_if(rows, [&](const Judged& row) {
    return row.set->choice == record.winner.choice && row.set->cache == record.key.policy.l2;
  });
  return found == rows.end() ? rows.front() : *found;
}

/// Returns how much faster the kernel could be, if it did the same work and its bound were never
/// idle.
std::string room_text(const CounterReport& report) {
  const double issue = report.issue_share.value_or(0);
  const double tensor = report.tensor_share.value_or(0);
  const bool memory = report.busy == Bound::memory;
  const double share = memory ? report.memory_share.value_or(0) : std::max(issue, tensor);
  const std::string_view unit = memory            ? "memory is"
                                : tensor >= issue ? "tensor cores are"
                                                  : "issue slots are";
  constexpr double kFull = 100;
  return concat("room: ", fixed(std::max(kFull / share, 1.0), 2), " times as fast at most; ", unit,
                " busy for ", fixed(share, 0), " %");
}

/// Prints the findings of one set of counters: wasted traffic, the bound of the kernel, and the
/// commonest stall of its warps.
void print_findings(const Page& page, const Judged& row) {
  const CounterReport& report = row.report;
  if (report.measured_bytes && report.counted_bytes > 0) {
    const double ratio = *report.measured_bytes / report.counted_bytes;
    page.print("", concat(row.name, ": ", format_bytes(*report.measured_bytes), " moved, ",
                          fixed(ratio, 2), " times what the operation has to"));
    constexpr double kAll = 0.995;  // 1.00 as it is printed
    if (ratio < kAll) {
      page.print("", row.set->cache == L2State::cold
                         ? "what it wrote and left in the L2 moves later, and is not counted"
                         : "the rest stayed in the L2");
    }
  }
  if (!report.disagreement.empty()) {
    page.print("", report.disagreement);
  } else if (report.busy) {
    page.print("", concat("by the counters too it is bound by ", to_string(*report.busy)));
  } else if (report.counted) {
    page.print("", "neither memory nor arithmetic is busy for most of its time");
  }
  if (report.busy) page.print("", room_text(report));
  for (const Counter& counter : counters()) {
    if (report.waits_for.empty() || stall_reason(counter.name) != report.waits_for) continue;
    page.print("", concat("stalls: ", counter.meaning, " (", report.waits_for, ")"));
  }
}

/// Prints why values are marked or missing, each reason once. For missing values a page that is not
/// verbose has only their number.
void print_reasons(const Page& page, const std::vector<Judged>& rows) {
  std::map<std::string, std::set<std::string>> marked;
  std::map<std::string, std::set<std::string>> missing;
  for (const Judged& row : rows) {
    for (const CountedKernel& kernel : row.set->kernels) {
      for (const CounterValue& value : kernel.values) {
        if (!value.reason.empty()) {
          (value.value ? marked : missing)[value.reason].insert(value.name);
        }
      }
    }
  }
  const auto print = [&](const std::set<std::string>& names, const std::string& reason) {
    for (const std::string& name : names) page.print("", concat(name, ": ", reason));
  };
  for (const auto& [reason, names] : marked) print(names, reason);
  for (const auto& [reason, names] : missing) {
    if (page.verbose()) {
      print(names, reason);
    } else {
      page.print("", concat("without a value: ", counted(names.size(), "counter"), ", ", reason));
    }
  }
}

void print_kernels(const Page& page, const std::vector<Judged>& rows) {
  Table table({{"set"}, {"kernel"}, {"counter"}, {"value", true}, {"unit"}});
  for (const Judged& row : rows) {
    for (const CountedKernel& kernel : row.set->kernels) {
      for (const CounterValue& value : kernel.values) {
        std::string_view unit;
        for (const Counter& counter : counters()) {
          if (counter.name == value.name) unit = counter.unit;
        }
        table.add({row.name, kernel.name, value.name,
                   value.value ? significant(*value.value, 6) : "-", std::string(unit)});
      }
    }
  }
  page.print(table);
}

void print_source(const Page& page, const std::vector<Judged>& rows, const TuningRecord& record) {
  page.print("counters", source_text(*rows.front().set));
  Table table({{""},
               {"time", true},
               {"memory", true},
               {"bytes", true},
               {"L2 hits", true},
               {"tensor", true},
               {"warps", true},
               {"issue", true}});
  for (const Judged& row : rows) add_row(table, row);
  page.print(table);
  for (const Judged& row : rows) {
    if (!row.report.time_differs) continue;
    page.print("", concat(row.name, " took ", format_us(*row.report.time_us), " alone, and ",
                          format_us(row.report.race_us), " in the race's trains"));
  }
  print_findings(page, foremost(rows, record));
  print_reasons(page, rows);
  if (page.verbose()) print_kernels(page, rows);
}

Json kernel_json(const CountedKernel& kernel) {
  Json values = Json::object();
  for (const CounterValue& value : kernel.values) {
    Json entry = {{"value", tree_of(value.value)}};
    for (const Counter& counter : counters()) {
      if (counter.name != value.name) continue;
      entry["unit"] = counter.unit;
      entry["meaning"] = counter.meaning;
    }
    if (!value.reason.empty()) entry["reason"] = value.reason;
    values[value.name] = std::move(entry);
  }
  return {{"kernel", kernel.name}, {"grid", kernel.grid}, {"values", std::move(values)}};
}

}  // namespace

void print_counters(const Page& page, const TuningRecord& record, const ServiceCore& service) {
  std::map<CounterSource, std::vector<Judged>> by_source;
  for (Judged& row : judge_counters(record, service)) {
    by_source[row.set->source].push_back(std::move(row));
  }
  for (const auto& [source, rows] : by_source) print_source(page, rows, record);
}

void print_counter_summary(const Page& page, const TuningRecord& record,
                           const ServiceCore& service) {
  const std::vector<Judged> rows = judge_counters(record, service);
  if (rows.empty()) return;
  const Judged& row = foremost(rows, record);
  std::string shares;
  const auto add = [&](std::string_view name, std::string_view counter) {
    if (!row.set->mean(counter) || is_marked(*row.set, counter)) return;
    shares += concat(shares.empty() ? "" : ", ", name, " ", share_cell(*row.set, counter));
  };
  add("memory", kDramShareCounter);
  add("tensor cores", kTensorShareCounter);
  add("issue slots", kIssueCounter);
  add("L2 hits", kL2HitCounter);
  page.print("counters", shares.empty() ? "none of them has a value" : shares);
  print_findings(page, row);
}

Json counters_json(const TuningRecord& record, const ServiceCore& service) {
  Json sets = Json::array();
  for (const Judged& row : judge_counters(record, service)) {
    const CounterSet& set = *row.set;
    Json kernels = Json::array();
    for (const CountedKernel& kernel : set.kernels) kernels.push_back(kernel_json(kernel));
    sets.push_back({{"candidate", set.choice.id()},
                    {"role", role_in(record, set.choice)},
                    {"source", to_string(set.source)},
                    {"version", set.version},
                    {"mode", to_string(set.mode)},
                    {"cache", to_string(set.cache)},
                    {"passes", set.passes},
                    {"time_us", tree_of(row.report.time_us)},
                    {"race_us", row.report.race_us},
                    {"time_differs", row.report.time_differs},
                    {"counted_bytes", row.report.counted_bytes},
                    {"measured_bytes", tree_of(row.report.measured_bytes)},
                    {"busy", tree_of(row.report.busy)},
                    {"disagreement", row.report.disagreement},
                    {"kernels", std::move(kernels)}});
  }
  return sets;
}

}  // namespace kernwright::cli
