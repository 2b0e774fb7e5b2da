#pragma once

#include "cache/records/record.h"
#include "cli/output.h"
#include "cli/page.h"
#include "service/serve/core.h"

namespace kernwright::cli {

/// Prints the counters of a record, if it has any: one table for each source, and what they say
/// about the record. `page.verbose()` prints every kernel and every reason.
void print_counters(const Page& page, const TuningRecord& record, const ServiceCore& service);

/// Prints the same in a few lines, for the winner alone.
void print_counter_summary(const Page& page, const TuningRecord& record,
                           const ServiceCore& service);

/// Returns an array with one object for each set of counters, with units and meanings.
Json counters_json(const TuningRecord& record, const ServiceCore& service);

}  // namespace kernwright::cli
