#include "cache/stores/failure_store.h"

#include <algorithm>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "cache/records/record.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr FileKind kList{"list of failures", std::uint64_t{16} << 20};
// Processes that append at the same time may go beyond the limit by a line each.
constexpr FileKind kListToRead{kList.name, 2 * kList.most_bytes};

Result<Failure> parse_failure(std::string_view line) {
  Failure failure;
  KW_TRY(parse_fields(line, "failure", [&](FieldReader& fields) {
    describe(fields, failure);
    if (!lasting_severity(failure.outcome)) {
      fields.fail("outcome", concat('"', to_string(failure.outcome), "\" does not last"));
    }
  }));
  return failure;
}

}  // namespace

std::optional<FailureSeverity> lasting_severity(Outcome outcome) {
  switch (outcome) {
    case Outcome::illegal_address:
    case Outcome::timed_out:
    case Outcome::worker_died:
      return FailureSeverity::fatal;
    case Outcome::out_of_bounds:
    case Outcome::wrong_result:
      return FailureSeverity::unsafe;
    default:
      return std::nullopt;
  }
}

std::filesystem::path FailureStore::path(std::string_view problem) const {
  return root_ / "v1" / "failures" / concat(operation_of(problem), ".jsonl");
}

Result<void> FailureStore::put(const Failure& failure) const {
  if (!lasting_severity(failure.outcome)) {
    return Error{ErrorCode::invalid_argument,
                 concat("the failure of ", failure.choice.id(),
                        " does not last: ", to_string(failure.outcome))};
  }
  if (!is_identifier(operation_of(failure.problem))) {
    return Error{ErrorCode::invalid_argument,
                 concat("\"", failure.problem, "\" names no operation")};
  }
  return append_line(path(failure.problem), fields_text(failure), kList, root_);
}

std::vector<Failure> FailureStore::active(
    std::string_view problem, const FailureScope& now,
    const std::function<std::string(std::string_view kernel_template)>& template_digest) const {
  std::vector<Failure> found;
  if (!is_identifier(operation_of(problem))) return found;
  const Result<std::string> text = read_file(path(problem), kListToRead, root_);
  if (!text) return found;
  for (const std::string_view line : split(*text, '\n')) {
    Result<Failure> failure = parse_failure(line);
    if (!failure || failure->problem != problem) continue;
    FailureScope present = now;
    present.template_digest = template_digest(failure->choice.kernel_template);
    if (failure->scope != present) continue;
    std::erase_if(found, [&](const Failure& earlier) { return earlier.choice == failure->choice; });
    found.push_back(*std::move(failure));
  }
  return found;
}

}  // namespace kernwright
