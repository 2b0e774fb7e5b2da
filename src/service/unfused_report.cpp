#include "service/unfused_report.h"

#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cache/record_head.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// The kernel that a record's winner is.
Result<ProvenKernel> compile_winner(ServiceCore& core, const Problem& problem,
                                    const TuningRecord& record) {
  Result<Candidate> candidate =
      core.candidate(problem, record.winner.kernel_template, record.winner.configuration.values());
  if (!candidate) return candidate.error();
  Result<Artifact> artifact = core.compile(*candidate);
  if (!artifact) return artifact.error();
  return ProvenKernel{*std::move(candidate), std::move(artifact->kernel)};
}

Result<UnfusedReport::Kernel> describe(const Candidate& candidate, const TuningRecord& record) {
  const Result<std::int64_t> bytes =
      candidate.operation->bytes.evaluate(candidate.operation->scope(candidate.problem));
  if (!bytes) {
    return Error{bytes.error().code,
                 concat(candidate.problem.text(), ": its bytes: ", bytes.error().message)};
  }
  const HeadWinner winner = head_of(record).winner;
  return UnfusedReport::Kernel{
      .problem = candidate.problem.text(),
      .kernel_template = record.winner.kernel_template,
      .configuration = record.winner.configuration.text(),
      .bytes = *bytes,
      .launches = static_cast<int>(candidate.plan.launches.size()),
      .us = record.grade == RecordGrade::measured ? winner.measured_us : winner.predicted_us};
}

void add(UnfusedReport::Side& side, const UnfusedReport::Kernel& kernel) {
  side.bytes += kernel.bytes;
  side.launches += kernel.launches;
  side.us += kernel.us;
}

void measure(UnfusedReport::Side& side, const ComparedSide& measured) {
  side.us = measured.times.median_us();
  side.max_error = measured.check.max_error;
}

}  // namespace

Result<UnfusedReport> report_unfused(ServiceCore& core, const Problem& problem,
                                     const RecordOf& record_of, std::uint64_t seed) {
  const Result<ServiceCore::Named> named = core.name(problem);
  if (!named) return named.error();
  Result<UnfusedForm> form = unfused_form(core.catalog(), *named->operation, named->problem);
  if (!form) return form.error();

  std::vector<Problem> problems{named->problem};
  for (const UnfusedKernel& kernel : form->kernels) problems.push_back(kernel.problem);
  std::set<std::string> different;
  for (const Problem& each : problems) different.insert(each.text());
  std::map<std::string, TuningRecord> records;
  std::vector<ProvenKernel> compiled;
  UnfusedReport report;
  for (const Problem& each : problems) {
    auto record = records.find(each.text());
    if (record == records.end()) {
      Result<TuningRecord> got = record_of(each, static_cast<int>(different.size()));
      if (!got) return Error{got.error().code, concat(each.text(), ": ", got.error().message)};
      record = records.emplace(each.text(), *std::move(got)).first;
    }
    Result<ProvenKernel> winner = compile_winner(core, each, record->second);
    if (!winner) return winner.error();
    Result<UnfusedReport::Kernel> kernel = describe(winner->candidate, record->second);
    if (!kernel) return kernel.error();
    report.kernels.push_back(*std::move(kernel));
    compiled.push_back(*std::move(winner));
  }
  report.fused_kernel = report.kernels.front();
  report.kernels.erase(report.kernels.begin());
  add(report.fused, report.fused_kernel);
  for (const UnfusedReport::Kernel& kernel : report.kernels) add(report.unfused, kernel);
  if (!core.has_device()) return report;

  UnfusedMatch match;
  match.fused = std::move(compiled.front());
  match.form = *std::move(form);
  match.kernels.assign(std::make_move_iterator(compiled.begin() + 1),
                       std::make_move_iterator(compiled.end()));
  const Result<UnfusedComparison> compared = core.compare_unfused(match, seed);
  if (!compared) return compared.error();
  report.measured = true;
  measure(report.fused, compared->fused);
  measure(report.unfused, compared->unfused);
  return report;
}

}  // namespace kernwright
