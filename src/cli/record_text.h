#pragma once

#include <string>
#include <string_view>

#include "cache/records/record.h"
#include "cli/page.h"
#include "service/serve/core.h"
#include "tuner/session/search.h"

namespace kernwright::cli {

/// A record with its evidence, for people: the winner's configuration in full, the runners-up as
/// what is different in them. A verbose page has all of them, in full, and what made the record.
void print_record(const Page& page, const TuningRecord& record, const ServiceCore& service);

/// A record that was made just now, and how: trials by outcome, and where the time went.
void print_result(const Page& page, const TuningResult& result, const ServiceCore& service);

/// A problem with its winner in a few lines. `note` says what is special about it; may be empty.
void print_winner(const Page& page, const TuningRecord& record, std::string_view note);

/// The time that speaks for a record: its winner's median, in turn with others, or what was
/// predicted.
double winner_us(const TuningRecord& record);

/// "82 % of the roofline (208.4 us), bound by memory", or, where launching costs more than the
/// work, that alone.
std::string roofline_text(const TuningRecord& record, const ServiceCore& service);

}  // namespace kernwright::cli
