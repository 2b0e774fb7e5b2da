#include "tuner/session/family_rows.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "compile/launch_fit.h"
#include "support/statistics.h"
#include "support/try.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// Rounds of those that are within so much of the best; the others have the samples of their visit.
constexpr int kRounds = 5;
constexpr double kClose = 1.2;
constexpr double kHopeless = 2;
/// Where arithmetic sets the roofline, clocks fall with the power of each kernel. So the best few
/// run alone for a moment, and the later half of the samples counts.
constexpr double kComputeBound = 1.2;  ///< of the time of the bytes
constexpr std::size_t kAlone = 4;
constexpr double kReach = 0.15;
constexpr std::size_t kAloneSamples = 40;
/// How long it is until the environment is looked at again.
constexpr double kAuditSeconds = 10;
/// How long a runner keeps the device busy before it measures. Rounds show what is left.
constexpr double kSettleSeconds = 0.1;

}  // namespace

Result<void> FamilyRows::measure(const BoundProblem& problem, std::span<const std::size_t> columns,
                                 FamilyMatrix::Use use, std::span<const std::size_t> exam) {
  KW_ASSIGN(const std::unique_ptr<Runner> runner, steps_.open(problem));
  if (options_.clock_seconds() >= next_audit_) {
    KW_ASSIGN(const Audit audit, runner->audit());
    audit_.merge(audit);
    next_audit_ = options_.clock_seconds() + kAuditSeconds;
  }
  Screening screening(*runner, options_.clock_seconds, kSettleSeconds);
  KW_TRY(screening.settle());
  std::vector<Entry> entries;
  double best = std::numeric_limits<double>::infinity();
  for (const std::size_t c : columns) {
    KW_ASSIGN(std::optional<Entry> entry, visit(*runner, screening, problem, c, kHopeless * best));
    if (!entry) continue;
    best = std::min(best, median(entry->samples_us));
    entries.push_back(*std::move(entry));
  }
  KW_TRY(play_rounds(screening, entries, best));
  const double bytes_us = problem.bytes() / (1e3 * in_.profile.dram_gbps);
  if (roofline_us(problem, in_.profile) > kComputeBound * bytes_us) {
    KW_TRY(run_alone(screening, entries));
  }
  for (const Entry& entry : entries) {
    if (std::ranges::find(exam, entry.column) == exam.end()) continue;
    KW_ASSIGN(const Runner::Checked checked, runner->check(entry.id, Runner::CheckDepth::finalist));
    if (checked.step.outcome == Outcome::ok) {
      matrix_.pass(entry.column);
    } else {
      matrix_.fail(entry.column);
    }
  }
  audit_.merge(screening.audit());
  for (const Entry& entry : entries) runner->drop(entry.id);
  std::vector<FamilyMatrix::Samples> samples;
  for (Entry& entry : entries) samples.push_back({entry.column, std::move(entry.samples_us)});
  if (!samples.empty()) matrix_.keep(problem, samples, use);
  return {};
}

Result<std::optional<FamilyRows::Entry>> FamilyRows::visit(Runner& runner, Screening& screening,
                                                           const BoundProblem& problem,
                                                           std::size_t c, double hopeless_us) {
  const FamilyMatrix::Column& column = matrix_.columns()[c];
  if (column.failed) return std::optional<Entry>();
  const Result<Candidate> candidate = matrix_.candidate_at(c, problem);
  if (!candidate) return std::optional<Entry>();
  const CompileResult compiled = column.build.get();
  if (!compiled && compiled.error().code == ErrorCode::unavailable) return compiled.error();
  if (check_compiled(*candidate, compiled, in_.profile).outcome != Outcome::ok) {
    matrix_.fail(c);
    return std::optional<Entry>();
  }
  KW_ASSIGN(Screening::Visit visited, screening.visit(*candidate, **compiled, hopeless_us));
  if (visited.step.outcome != Outcome::ok) {
    if (visited.id >= 0) runner.drop(visited.id);
    if (runner.lost()) return Error{ErrorCode::device, visited.step.detail};
    // A kernel that is wrong at one size is trusted at none.
    matrix_.fail(c);
    return std::optional<Entry>();
  }
  return std::optional(Entry{c, visited.id, std::move(visited.samples_us)});
}

Result<void> FamilyRows::play_rounds(Screening& screening, std::vector<Entry>& entries,
                                     double best) {
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (median(entries[i].samples_us) <= kClose * best) close.push_back(i);
  }
  for (int round = 0; round < kRounds && close.size() > 1; ++round) {
    std::ranges::shuffle(close, random_);
    std::vector<Runner::Id> order;
    for (const std::size_t i : close) order.push_back(entries[i].id);
    KW_ASSIGN(const std::vector<Runner::Sampled> sampled, screening.top_up(order));
    for (std::size_t i = 0; i < close.size(); ++i) {
      if (sampled[i].step.outcome != Outcome::ok) {
        matrix_.fail(entries[close[i]].column);
        continue;
      }
      entries[close[i]].samples_us.push_back(sampled[i].sample.us);
    }
  }
  return {};
}

Result<void> FamilyRows::run_alone(Screening& screening, std::vector<Entry>& entries) {
  std::vector<Entry*> best;
  for (Entry& entry : entries) best.push_back(&entry);
  std::ranges::sort(best, {}, [](const Entry* entry) { return median(entry->samples_us); });
  const auto is_far = [&](const Entry* entry) {
    return median(entry->samples_us) > (1 + kReach) * median(best.front()->samples_us);
  };
  std::erase_if(best, is_far);
  if (best.size() > kAlone) best.resize(kAlone);
  if (best.size() < 2) return {};
  std::vector<double> alone;
  for (const Entry* entry : best) {
    const std::vector<Runner::Id> order(kAloneSamples, entry->id);
    KW_ASSIGN(const std::vector<Runner::Sampled> sampled, screening.top_up(order));
    std::vector<double> later;
    for (std::size_t i = kAloneSamples / 2; i < sampled.size(); ++i) {
      if (sampled[i].step.outcome != Outcome::ok) {
        matrix_.fail(entry->column);
        return {};
      }
      later.push_back(sampled[i].sample.us);
    }
    alone.push_back(median(std::move(later)));
  }
  const double scale = median(best.front()->samples_us) / *std::ranges::min_element(alone);
  for (std::size_t i = 0; i < best.size(); ++i) best[i]->samples_us = {scale * alone[i]};
  return {};
}

}  // namespace kernwright
