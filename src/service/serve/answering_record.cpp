#include "service/serve/answering_record.h"

#include <algorithm>
#include <utility>

#include "support/text.h"

namespace kernwright {
namespace {

/// If a runner-up is served, puts it first and returns the candidate that it replaces.
std::string put_first(TuningRecord& record, const std::string& served) {
  std::string measured = record.winner.choice.id();
  const auto found =
      std::find_if(record.runners_up.begin(), record.runners_up.end(),
                   [&](const RankedConfiguration& ranked) { return ranked.choice.id() == served; });
  if (measured == served || found == record.runners_up.end()) return {};
  std::swap(record.winner, *found);
  std::rotate(record.runners_up.begin(), found, found + 1);
  record.launch_paths = {};  // they were measured for the replaced one
  return measured;
}

}  // namespace

Result<AnsweringRecord> answering_record(const ServiceCore& service, const BoundProblem& problem) {
  Answers answers = service.answers().look_up(problem);
  if (answers.records.empty()) {
    return Error{
        ErrorCode::not_found,
        concat("no record for ", problem.text(), " on ", service.profile().id,
               answers.reason == MissReason::absent ? std::string()
                                                    : concat(": ", to_string(answers.reason)))};
  }
  const GradedRecord& best = answers.records.front();
  const std::string served = best.head.winner.choice.id();
  if (best.file.empty()) {
    return Error{ErrorCode::not_found, concat(served, " is pinned, and no record knows it")};
  }
  Lookup<TuningRecord> read = read_record(best.file);
  if (!read) {
    return Error{ErrorCode::corrupt, concat(to_string(read.reason), ": ", read.detail)};
  }
  AnsweringRecord answer{.record = *std::move(read.value),
                         .file = best.file,
                         .match = best.match,
                         .reason = best.reason,
                         .records = answers.records.size(),
                         .decisions = std::move(answers.decisions)};
  answer.instead_of = put_first(answer.record, served);
  return answer;
}

}  // namespace kernwright
