#pragma once

#include <vector>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "model/result/counters.h"

namespace kernwright {

/// Writes the array `counters`, with one object for each set. A value is a number, or null if there
/// is none; `reasons` has the reasons beside it.
void write_counters(FieldWriter& json, const std::vector<CounterSet>& sets);

/// Reads it. Counters that are not among `counters()` are ignored.
void read_counters(FieldReader& fields, std::vector<CounterSet>& sets);

}  // namespace kernwright
