#include "service/report/unfused_report.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cache/records/record_head.h"
#include "cache/records/record_view.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// The share that the fused kernel gets first if there are only few seconds: a search of less
/// hardly looks at a product, and this kernel decides the comparison.
constexpr double kFusedSeconds = 5;

/// Shares out the seconds of a comparison over its searches, the fused kernel's first.
class Shares {
 public:
  Shares(double seconds, std::size_t problems) : left_(seconds), problems_(problems) {}

  /// Returns the seconds for the next problem.
  double next() const {
    if (problems_ <= 1) return left_;
    const double even = left_ / static_cast<double>(problems_);
    return fused_ ? std::min(left_, std::max(left_ / 2, kFusedSeconds)) : even;
  }
  /// Tells how many of them it took.
  void took(double seconds) {
    left_ = std::max(0.0, left_ - seconds);
    --problems_;
    fused_ = false;
  }

 private:
  double left_;
  std::size_t problems_;  ///< still to come
  bool fused_ = true;     ///< the next one is
};

/// Compiles the kernel that won in a record.
Result<ProvenKernel> compile_winner(ServiceCore& core, const BoundProblem& problem,
                                    const TuningRecord& record) {
  KW_ASSIGN(Candidate candidate,
            core.site().candidate(problem, record.winner.choice.kernel_template,
                                  record.winner.choice.configuration.values()));
  KW_ASSIGN(Artifact artifact, core.builder().build(candidate));
  return ProvenKernel{std::move(candidate), std::move(artifact.kernel)};
}

Result<UnfusedReport::Kernel> kernel_of(const Candidate& candidate, const TuningRecord& record) {
  const BoundProblem& problem = *candidate.problem;
  const Result<std::int64_t> bytes = problem.operation().bytes.evaluate(problem.scope());
  if (!bytes) {
    return Error{bytes.error().code,
                 concat(problem.text(), ": its bytes: ", bytes.error().message)};
  }
  const HeadWinner winner = head_of(record).winner;
  return UnfusedReport::Kernel{
      .problem = problem.text(),
      .kernel_template = record.winner.choice.kernel_template,
      .configuration = record.winner.choice.configuration.text(),
      .bytes = *bytes,
      .launches = static_cast<int>(candidate.plan.launches.size()),
      .us = record.grade == RecordGrade::measured ? winner.measured_us : winner.predicted_us,
      .hardly_looked = hardly_looked(record)};
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
                                     const RecordOf& record_of, double seconds,
                                     std::uint64_t seed) {
  KW_ASSIGN(const BoundProblem bound, core.bind(problem));
  KW_ASSIGN(UnfusedForm form, unfused_form(core.catalog(), bound));

  std::vector<BoundProblem> problems{bound};
  for (const UnfusedKernel& kernel : form.kernels) problems.push_back(kernel.problem);
  std::set<std::string> different;
  for (const BoundProblem& each : problems) different.insert(each.text());
  std::map<std::string, TuningRecord> records;
  std::vector<ProvenKernel> compiled;
  UnfusedReport report;
  Shares shares(seconds, different.size());
  for (const BoundProblem& each : problems) {
    auto record = records.find(each.text());
    if (record == records.end()) {
      Result<TuningRecord> got = record_of(each.problem(), shares.next());
      if (!got) return Error{got.error().code, concat(each.text(), ": ", got.error().message)};
      shares.took(got->wall_seconds);
      record = records.emplace(each.text(), *std::move(got)).first;
    }
    KW_ASSIGN(ProvenKernel winner, compile_winner(core, each, record->second));
    KW_ASSIGN(UnfusedReport::Kernel kernel, kernel_of(winner.candidate, record->second));
    report.kernels.push_back(std::move(kernel));
    compiled.push_back(std::move(winner));
  }
  report.fused_kernel = report.kernels.front();
  report.kernels.erase(report.kernels.begin());
  add(report.fused, report.fused_kernel);
  for (const UnfusedReport::Kernel& kernel : report.kernels) add(report.unfused, kernel);
  if (!core.has_device()) return report;

  UnfusedMatch match;
  match.fused = std::move(compiled.front());
  match.form = std::move(form);
  match.kernels.assign(std::make_move_iterator(compiled.begin() + 1),
                       std::make_move_iterator(compiled.end()));
  KW_ASSIGN(const UnfusedComparison compared, core.desk().compare_unfused(match, seed));
  report.measured = true;
  measure(report.fused, compared.fused);
  measure(report.unfused, compared.unfused);
  return report;
}

}  // namespace kernwright
