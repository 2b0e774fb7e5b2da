#pragma once

#include <string>
#include <string_view>

#include "cache/records/record.h"
#include "cli/page.h"
#include "service/serve/core.h"
#include "tuner/search/search.h"

namespace kernwright::cli {

/// Prints a record with its evidence, for people: the winner's configuration in full, and of the
/// runners-up the differences to it. A verbose page has all runners-up in full, and the environment
/// of the record.
void print_record(const Page& page, const TuningRecord& record, const ServiceCore& service);

/// Prints a record that was just made, with trials by outcome and the time of each part.
void print_result(const Page& page, const TuningResult& result, const ServiceCore& service);

/// Prints a problem and its winner in a few lines, with `note` unless that is empty.
void print_winner(const Page& page, const TuningRecord& record, std::string_view note);

/// The time of a record: the median of its winner in rounds with the other finalists, or the
/// predicted time.
double winner_us(const TuningRecord& record);

/// "82 % of the roofline (208.4 us), bound by memory", or a text that says that launching costs
/// more than the work.
std::string roofline_text(const TuningRecord& record, const ServiceCore& service);

}  // namespace kernwright::cli
