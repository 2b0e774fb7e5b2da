#pragma once

#include <string>
#include <string_view>

#include "cache/records/record.h"
#include "cli/page.h"
#include "service/report/sweep_report.h"
#include "service/serve/core.h"

namespace kernwright::cli {

/// Prints the facts about a record that a reader wants to see at one glance: the winner, how much
/// faster it is than the kernel before it, how sure that is, and what to do next. A verbose page
/// adds the evidence: runners-up, checks, audit, launch paths, environment.
void print_record(const Page& page, const TuningRecord& record, const ServiceCore& service);

/// Prints a record that was just made. A verbose page adds trials by outcome and the time of each
/// part.
void print_result(const Page& page, const TuningResult& result, const ServiceCore& service);

/// Prints a problem and its winner in a few lines, with `note` unless that is empty.
void print_winner(const Page& page, const TuningRecord& record, std::string_view note);

/// Judges a record. Errors: from binding its problem, whose operation or function may not exist any
/// more.
Result<ReportRow> judge(const TuningRecord& record, const ServiceCore& service);

/// Returns "82 % of the roofline, which memory sets", or that launching costs more than the work.
std::string bound_text(const ReportRow& row);

}  // namespace kernwright::cli
