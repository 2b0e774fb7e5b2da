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

FinalTimes final_times(const RankedConfiguration& ranked, const FinalRounds& rounds) {
  FinalTimes times{.in_turn = ranked.measurement, .alone = {}};
  const auto blocks = static_cast<std::size_t>(rounds.block_rounds);
  if (!ranked.in_blocks || blocks > ranked.measurement.samples_us.size()) return times;
  const auto split = [blocks](std::vector<double>& from, std::vector<double>& to) {
    if (from.size() < blocks) return;
    to.assign(from.end() - static_cast<std::ptrdiff_t>(blocks), from.end());
    from.resize(from.size() - blocks);
  };
  split(times.in_turn.samples_us, times.alone.samples_us);
  split(times.in_turn.sm_mhz, times.alone.sm_mhz);
  return times;
}

std::string to_json(const TuningRecord& record) { return fields_text(record); }

Result<TuningRecord> parse_record(std::string_view json) {
  return read_fields<TuningRecord>(json, "record");
}

}  // namespace kernwright
