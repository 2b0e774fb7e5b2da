#include "cache/records/record.h"

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"

namespace kernwright {

std::string_view operation_of(std::string_view problem) {
  return problem.substr(0, problem.find(' '));
}

std::string RecordKey::text() const {
  return problem + "; target=" + target + " sku=" + sku + ' ' + policy.text();
}

std::string to_json(const TuningRecord& record) { return fields_text(record); }

Result<TuningRecord> parse_record(std::string_view json) {
  return read_fields<TuningRecord>(json, "record");
}

}  // namespace kernwright
