#include "cache/records/family_record.h"

#include <algorithm>
#include <cstddef>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

Error corrupt(std::string_view what) { return {ErrorCode::corrupt, concat("family: ", what)}; }

/// The ranges are known to the operation alone, so their number is taken from the key.
std::size_t ranges_in(const FamilyHead& head) {
  std::size_t ranges = 0;
  const std::string& text = head.key.problem;
  for (std::size_t at = text.find(".."); at != std::string::npos; at = text.find("..", at + 2)) {
    ++ranges;
  }
  return ranges;
}

Result<void> check(const FamilyRecord& record) {
  KW_TRY(table_of(record.head));
  const std::vector<FamilyKernel>& kernels = record.head.kernels;
  const bool begins =
      record.tried.size() >= kernels.size() &&
      std::equal(kernels.begin(), kernels.end(), record.tried.begin(),
                 [](const FamilyKernel& a, const Choice& b) { return a.choice == b; });
  if (!begins) return corrupt("tried does not begin with the kernels");
  for (const auto* rows : {&record.matrix, &record.validation}) {
    for (const FamilyRow& row : *rows) {
      if (row.times_us.size() != record.tried.size() ||
          row.sizes.size() != ranges_in(record.head)) {
        return corrupt("a row has other sizes or choices than the family");
      }
    }
  }
  return {};
}

}  // namespace

Result<DispatchTable> table_of(const FamilyHead& head) {
  return DispatchTable::from(head.table, ranges_in(head), head.kernels.size());
}

bool is_family(const RecordKey& key) { return key.problem.find("..") != std::string::npos; }

std::string to_json(const FamilyHead& head) { return fields_text(head); }
std::string to_json(const FamilyRecord& record) { return fields_text(record); }

Result<FamilyHead> parse_family_head(std::string_view json) {
  KW_ASSIGN(FamilyHead head, read_fields<FamilyHead>(json, "family"));
  KW_TRY(table_of(head));
  return head;
}

Result<FamilyRecord> parse_family(std::string_view json) {
  KW_ASSIGN(FamilyRecord record, read_fields<FamilyRecord>(json, "family"));
  KW_TRY(check(record));
  return record;
}

}  // namespace kernwright
