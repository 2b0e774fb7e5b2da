#include "tuner/session/family_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "compile/launch_fit.h"
#include "compile/render.h"
#include "model/candidate/size_check.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/cost/cost_model.h"
#include "tuner/search/screening.h"

namespace kernwright {
namespace {

/// Sizes that are tuned at first, and the budget of one.
constexpr int kAnchors = 6;
constexpr double kLeastAnchorSeconds = 2;
constexpr double kAnchorShare = 0.035;
/// The share of the budget after which no more sizes are tuned or measured at first.
constexpr double kFirstShare = 0.75;
/// Finalists of an anchor that are measured at all sizes where they may be near the best.
constexpr std::size_t kOfAnchor = 4;
/// Choices of the cost model at a size that are looked at, that are compiled each time the size
/// comes up, and that are compiled for a size that validates.
constexpr std::size_t kListed = 300;
constexpr std::size_t kNew = 3;
constexpr std::size_t kNewForValidation = 4;
/// A choice is measured at a size if it is estimated to take at most so many times as long as the
/// best; at most so many at a time.
constexpr double kNear = 1.08;
/// The same for the best choice of a template of which nothing was measured nearby.
constexpr double kFarthest = 1.3;
constexpr std::size_t kAtATime = 8;
/// Sizes whose choices are compiled before they are measured, and how often sizes come up.
constexpr std::size_t kAhead = 6;
constexpr int kPasses = 4;
/// Sizes that are spread over the ranges.
constexpr int kSpreadSizes = 30;
/// Sizes that validate at a time, and at most as many breakpoints whose sides are measured.
constexpr int kValidation = 10;
constexpr std::size_t kBreakpoints = 4;
/// At most so many sizes are tuned after a validation: those with the largest regrets above this.
constexpr std::size_t kTunedAtATime = 3;
constexpr double kWorthTuning = 0.02;
/// A regret for which the table is made again if there is time.
constexpr double kTooSlow = 0.08;
/// Larger problems are not measured; the table is extended to them.
constexpr double kMemoryShare = 0.1;
constexpr double kLongestUs = 8'000;
/// Rounds of those that are within so much of the best; the others have the samples of their visit.
constexpr int kRounds = 5;
constexpr double kClose = 1.2;
constexpr double kHopeless = 2;
/// About how long the sizes take at which the finalists of a further size are measured.
constexpr double kLearnSeconds = 3;
/// Where arithmetic sets the roofline, clocks fall with the power of each kernel. So the best few
/// run alone for a moment, and the later half of the samples counts.
constexpr double kComputeBound = 1.2;  ///< of the time of the bytes
constexpr std::size_t kAlone = 4;
constexpr double kReach = 0.15;
constexpr std::size_t kAloneSamples = 16;
/// How long it is until the environment is looked at again.
constexpr double kAuditSeconds = 10;
/// How long a runner waits until the device is steady.
constexpr double kSettleSeconds = 0.3;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A choice that is measured at many sizes.
struct Column {
  Choice choice;
  const KernelTemplate* kernel_template = nullptr;
  Build build;
  bool failed = false;  ///< did not compile, or was wrong at some size
};

class FamilySearch {
 public:
  FamilySearch(const FamilyInput& input, const FamilySteps& steps, FamilyOptions options)
      : in_(input), steps_(steps), options_(std::move(options)), random_(options_.random_seed) {
    if (!options_.clock_seconds) options_.clock_seconds = steady_seconds;
    for (const FreeDim& dim : free()) free_names_.push_back(dim.name);
    started_ = options_.clock_seconds();
  }

  Result<FamilyRecord> run() {
    KW_ASSIGN(problems_, first_problems());
    KW_TRY(tune_anchors());
    KW_TRY(measure_matrix(kFirstShare * options_.seconds));
    if (rows_.empty()) {
      return Error{ErrorCode::not_found,
                   concat("no kernel could be measured for ", in_.family.text())};
    }
    fit();
    KW_TRY(measure_breakpoints());
    fit();
    while (true) {
      const double before = elapsed();
      KW_TRY(validate());
      // The next validation takes as long, and comes last.
      const double validated = elapsed() - before;
      const double left = options_.seconds - elapsed() - validated;
      const auto more = static_cast<std::size_t>(std::clamp(
          left / (anchor_seconds() + kLearnSeconds), 0.0, static_cast<double>(kTunedAtATime)));
      const std::vector<std::vector<std::int64_t>> slow = worth_tuning(more);
      // The rows of this validation alone make the table better.
      const bool fits_again = left > 0 && regret().worst > kTooSlow;
      if (slow.empty() && !fits_again) break;
      report("tuning further sizes", anchors_.size(), anchors_.size() + slow.size());
      for (const std::vector<std::int64_t>& sizes : slow) {
        KW_ASSIGN(const BoundProblem problem, in_.family.at(sizes));
        KW_TRY(tune_anchor(problem));
      }
      take_validation();
      KW_TRY(measure_matrix(options_.seconds - validated));
      fit();
    }
    return record();
  }

 private:
  double elapsed() const { return options_.clock_seconds() - started_; }
  const std::vector<FreeDim>& free() const { return in_.family.free(); }
  void report(std::string_view stage, std::size_t done, std::size_t of) const {
    if (!options_.progress) return;
    options_.progress({.stage = stage,
                       .done = static_cast<int>(done),
                       .of = static_cast<int>(of),
                       .kernels = static_cast<int>(columns_.size()),
                       .seconds = elapsed()});
  }
  std::vector<std::int64_t> sizes_of(const BoundProblem& problem) const {
    return *in_.family.sizes_of(problem.problem());
  }

  /// Returns the problem of these sizes. Errors: also for one that is too large to be measured.
  Result<BoundProblem> at(std::span<const std::int64_t> sizes) const {
    KW_ASSIGN(BoundProblem problem, in_.family.at(sizes));
    const double memory = kMemoryShare * static_cast<double>(in_.profile.memory_bytes);
    if (problem.bytes() <= memory && roofline_us(problem, in_.profile) <= kLongestUs)
      return problem;
    return Error{ErrorCode::invalid_argument,
                 concat(problem.text(), " is too large to be measured among many")};
  }

  /// Returns the problems of the first sizes: the ends of one range, the powers of two and sizes
  /// that are spread between them; the corners of several ranges, and sizes that are spread.
  Result<std::vector<BoundProblem>> first_problems() const {
    std::vector<std::vector<std::int64_t>> sizes;
    std::size_t most = std::numeric_limits<std::size_t>::max();
    if (free().size() == 1) {
      const FreeDim& range = free().front();
      sizes = {{range.first}, {range.last}};
      for (std::int64_t size = 1; size > 0 && size < range.last; size *= 2) {
        if (size > range.first) sizes.push_back({size});
      }
      // Most sizes are no multiples of a tile.
      for (int i = 0; i < kSpreadSizes; ++i) {
        sizes.push_back({size_at(range, (i + 0.5) / kSpreadSizes)});
      }
      std::ranges::sort(sizes);  // anchors go from one end to the other
    } else {
      const std::size_t corners = std::size_t{1} << std::min<std::size_t>(free().size(), 4);
      for (std::size_t corner = 0; corner < corners; ++corner) {
        std::vector<std::int64_t> at;
        for (std::size_t d = 0; d < free().size(); ++d) {
          at.push_back((corner >> d & 1) != 0 ? free()[d].last : free()[d].first);
        }
        sizes.push_back(std::move(at));
      }
      most = corners + kSpreadSizes;
      // Of some there is no problem.
      for (const std::vector<double>& places : spread_evenly(free().size(), 4 * kSpreadSizes)) {
        std::vector<std::int64_t> at;
        for (std::size_t d = 0; d < free().size(); ++d) at.push_back(size_at(free()[d], places[d]));
        sizes.push_back(std::move(at));
      }
    }
    std::vector<BoundProblem> problems;
    Error why{ErrorCode::not_found, concat("no problem of ", in_.family.text())};
    std::set<std::vector<std::int64_t>> seen;
    for (const std::vector<std::int64_t>& sizes_at : sizes) {
      if (problems.size() == most) break;
      Result<BoundProblem> problem = at(sizes_at);
      if (problem && !seen.insert(sizes_at).second) continue;
      if (problem) {
        problems.push_back(*std::move(problem));
      } else {
        why = problem.error();
      }
    }
    if (problems.empty()) return why;
    return problems;
  }

  /// Has a choice compiled that is valid for `example`, to be measured where its bits are the same.
  void add(const Choice& added, const BoundProblem& example) {
    const auto found = in_.catalog.kernel_template(added.kernel_template);
    if (!found) return;
    // A dim that is compiled in makes other bits for each of its sizes.
    const auto is_free = [this](const std::string& dim) {
      return find_named(free(), dim) != nullptr;
    };
    if (std::ranges::any_of((*found)->constant_dims, is_free)) return;
    const Result<Candidate> candidate =
        make_candidate(**found, example, added.configuration, in_.profile);
    if (!candidate || broken_habit(*candidate) != nullptr) return;
    Choice choice = choice_of_bits(*candidate, free_names_);
    if (is_column(choice) || in_.decisions.banned(candidate->id())) return;
    columns_.push_back(
        {.choice = std::move(choice),
         .kernel_template = *found,
         .build = in_.pool.submit(render(*candidate, in_.catalog, in_.profile.sm_arch))});
    for (auto* rows : {&rows_, &validation_}) {
      for (FamilyRow& row : *rows) row.times_us.push_back(0);
    }
  }

  double anchor_seconds() const {
    return std::max(kLeastAnchorSeconds, kAnchorShare * options_.seconds);
  }

  Result<void> tune_anchor(const BoundProblem& problem) {
    anchors_.insert(sizes_of(problem));
    KW_ASSIGN(const TuningRecord record, steps_.tune(problem, anchor_seconds()));
    audit_.merge(record.audit);
    device_name_ = record.device_name;
    add(record.winner.choice, problem);
    for (std::size_t i = 0; i + 1 < kOfAnchor && i < record.runners_up.size(); ++i) {
      add(record.runners_up[i].choice, problem);
    }
    return {};
  }

  /// Tunes a few of the problems, from one end to the other.
  Result<void> tune_anchors() {
    std::set<std::size_t> taken;
    for (int i = 0; i < kAnchors; ++i) {
      taken.insert(static_cast<std::size_t>(
          std::llround(i * static_cast<double>(problems_.size() - 1) / (kAnchors - 1))));
    }
    std::size_t done = 0;
    for (const std::size_t at : taken) {
      report("tuning sizes", done++, taken.size());
      if (done > 1 && elapsed() > kFirstShare / 2 * options_.seconds) break;
      KW_TRY(tune_anchor(problems_[at]));
    }
    return {};
  }

  /// Measures at the problems what may be near the best there, by what was measured so far, until
  /// nothing is left or the time is over. Each pass has an order in which every part is spread over
  /// the ranges.
  Result<void> measure_matrix(double until) {
    for (int pass = 0; pass < kPasses; ++pass) {
      std::ranges::shuffle(problems_, random_);
      std::size_t planned = 0;
      bool measured = false;
      for (std::size_t i = 0; i < problems_.size(); ++i) {
        report("measuring kernels at sizes", i, problems_.size());
        if (i > 2 && elapsed() > until) return {};
        for (; planned < std::min(i + kAhead, problems_.size()); ++planned) {
          add_likely(problems_[planned], kNew);
        }
        const std::vector<std::size_t> columns = worth_measuring(problems_[i], {});
        if (columns.empty()) continue;
        KW_TRY(measure(problems_[i], columns, rows_));
        measured = true;
      }
      if (!measured) break;
    }
    return {};
  }

  /// A choice of the cost model for one problem.
  struct Listed {
    Choice choice;
    double predicted_us;
  };
  /// Returns the best of the cost model for a problem, the best first.
  const std::vector<Listed>& listed(const BoundProblem& problem) {
    const auto [at, is_new] = listed_.try_emplace(sizes_of(problem));
    if (!is_new) return at->second;
    if (const auto list = enumerate_candidates(in_.catalog, problem, in_.profile)) {
      const std::vector<std::size_t> order = best_of_each_group(*list);
      for (std::size_t i = 0; i < std::min(order.size(), kListed); ++i) {
        at->second.push_back({choice_of_bits(list->candidates[order[i]], free_names_),
                              list->predicted_us[order[i]]});
      }
    }
    return at->second;
  }

  FamilyEstimate estimate() {
    choices_.clear();
    for (const Column& column : columns_) choices_.push_back(column.choice);
    return {choices_, rows_, predict_};
  }

  /// Adds the choices that are estimated to be the best at a problem, at most so many, if they are
  /// near the best of the columns. Returns the columns that are new.
  std::vector<std::size_t> add_likely(const BoundProblem& problem, std::size_t most) {
    const std::vector<std::int64_t> sizes = sizes_of(problem);
    const FamilyEstimate by = estimate();
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const double us = by.us(c, sizes);
      if (us > 0) best = std::min(best, us);
    }
    std::vector<std::pair<double, const Choice*>> likely;
    for (const Listed& one : listed(problem)) {
      const double us = by.us(one.choice, one.predicted_us, sizes);
      best = std::min(best, us);
      if (us <= kFarthest * best && !is_column(one.choice)) likely.emplace_back(us, &one.choice);
    }
    std::erase_if(likely, [&](const auto& one) { return one.first > kFarthest * best; });
    std::ranges::stable_sort(likely, {}, [](const auto& one) { return one.first; });
    const std::size_t before = columns_.size();
    // A template of which nothing is known nearby may be far better than it is predicted.
    std::set<std::string_view> unknown;
    for (const auto& [us, choice] : likely) {
      if (is_known_near(choice->kernel_template, sizes)) continue;
      if (unknown.insert(choice->kernel_template).second) add(*choice, problem);
    }
    for (const auto& [us, choice] : likely) {
      if (columns_.size() >= before + most || us > kNear * best) break;
      if (!is_column(*choice)) add(*choice, problem);
    }
    std::vector<std::size_t> added(columns_.size() - before);
    std::iota(added.begin(), added.end(), before);
    return added;
  }

  /// Returns whether a choice of the template was measured within an octave of these sizes.
  bool is_known_near(std::string_view kernel_template,
                     const std::vector<std::int64_t>& sizes) const {
    return std::ranges::any_of(rows_, [&](const FamilyRow& row) {
      if (distance(row.sizes, sizes) > 1) return false;
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (row.times_us[c] > 0 && columns_[c].choice.kernel_template == kernel_template)
          return true;
      }
      return false;
    });
  }

  bool is_column(const Choice& choice) const {
    return std::ranges::find(columns_, choice, &Column::choice) != columns_.end();
  }

  /// A column at one problem.
  struct Entry {
    std::size_t column;
    Runner::Id id;
    std::vector<double> samples_us;
  };

  /// Measures columns at a problem, and adds the row, or to the row that is there. The columns in
  /// `exam` are checked as finalists are.
  Result<void> measure(const BoundProblem& problem, std::span<const std::size_t> columns,
                       std::vector<FamilyRow>& rows, std::span<const std::size_t> exam = {}) {
    KW_ASSIGN(const std::unique_ptr<Runner> runner, steps_.open(problem));
    if (elapsed() >= next_audit_) {
      KW_ASSIGN(const Audit audit, runner->audit());
      audit_.merge(audit);
      next_audit_ = elapsed() + kAuditSeconds;
    }
    Screening screening(*runner, options_.clock_seconds, kSettleSeconds);
    KW_TRY(screening.settle());
    std::vector<Entry> entries;
    double best = std::numeric_limits<double>::infinity();
    for (const std::size_t c : columns) {
      KW_ASSIGN(std::optional<Entry> entry,
                visit(*runner, screening, problem, c, kHopeless * best));
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
      KW_ASSIGN(const Runner::Checked checked,
                runner->check(entry.id, Runner::CheckDepth::finalist));
      if (checked.step.outcome != Outcome::ok) columns_[entry.column].failed = true;
    }
    audit_.merge(screening.audit());
    for (const Entry& entry : entries) runner->drop(entry.id);
    if (!entries.empty()) keep(problem, entries, rows);
    return {};
  }

  /// Returns the columns to measure at a problem, the best first: those in `also`, and those that
  /// are estimated to be near the best and were not measured there, with the best that was.
  std::vector<std::size_t> worth_measuring(const BoundProblem& problem,
                                           std::span<const std::size_t> also) {
    const std::vector<std::int64_t> sizes = sizes_of(problem);
    const auto row = std::ranges::find(rows_, sizes, &FamilyRow::sizes);
    const FamilyEstimate by = estimate();
    std::vector<std::pair<double, std::size_t>> ranked;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const double us = by.us(c, sizes);
      if (us > 0) ranked.emplace_back(us, c);
    }
    std::ranges::sort(ranked);
    std::vector<std::size_t> kept;
    std::optional<std::size_t> known;
    std::size_t unknown = 0;
    for (const auto& [us, c] : ranked) {
      const bool must = std::ranges::find(also, c) != also.end();
      const bool measured = row != rows_.end() && row->times_us[c] > 0;
      if (measured && !known) known = c;
      const double times = us / ranked.front().first;
      const bool is_likely =
          times <= kNear ||
          (times <= kFarthest && !is_known_near(columns_[c].choice.kernel_template, sizes));
      const bool is_near = !measured && is_likely && unknown < kAtATime;
      if (is_near) ++unknown;
      if (is_near || must) kept.push_back(c);
    }
    // Times of two openings are compared by what was measured in both.
    if (!kept.empty() && known && std::ranges::find(kept, *known) == kept.end()) {
      kept.insert(kept.begin(), *known);
    }
    return kept;
  }

  Result<std::optional<Entry>> visit(Runner& runner, Screening& screening,
                                     const BoundProblem& problem, std::size_t c,
                                     double hopeless_us) {
    Column& column = columns_[c];
    if (column.failed) return std::optional<Entry>();
    const Result<Candidate> candidate = candidate_at(column, problem);
    if (!candidate) return std::optional<Entry>();
    const CompileResult compiled = column.build.get();
    if (!compiled && compiled.error().code == ErrorCode::unavailable) return compiled.error();
    if (check_compiled(*candidate, compiled, in_.profile).outcome != Outcome::ok) {
      column.failed = true;
      return std::optional<Entry>();
    }
    KW_ASSIGN(Screening::Visit visited, screening.visit(*candidate, **compiled, hopeless_us));
    if (visited.step.outcome != Outcome::ok) {
      if (visited.id >= 0) runner.drop(visited.id);
      if (runner.lost()) return Error{ErrorCode::device, visited.step.detail};
      // A kernel that is wrong at one size is trusted at none.
      column.failed = true;
      return std::optional<Entry>();
    }
    return std::optional(Entry{c, visited.id, std::move(visited.samples_us)});
  }

  Result<Candidate> valid_at(const Column& column, const BoundProblem& problem) const {
    KW_TRY(applies(*column.kernel_template, problem, in_.profile));
    KW_ASSIGN(Candidate candidate, make_candidate(*column.kernel_template, problem,
                                                  column.choice.configuration, in_.profile));
    if (broken_habit(candidate) == nullptr) return candidate;
    return Error{ErrorCode::not_found, "a habit is broken"};
  }

  /// Returns the column's candidate, if its bits are the same there.
  Result<Candidate> candidate_at(const Column& column, const BoundProblem& problem) const {
    KW_ASSIGN(Candidate candidate, valid_at(column, problem));
    KW_ASSIGN(const std::string digest,
              in_.pool.digest(render(candidate, in_.catalog, in_.profile.sm_arch)));
    if (digest == column.build.digest) return candidate;
    return Error{ErrorCode::not_found, "its bits are others at this size"};
  }

  /// Samples those near the best in rounds, each in another order.
  Result<void> play_rounds(Screening& screening, std::vector<Entry>& entries, double best) {
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
          columns_[entries[close[i]].column].failed = true;
          continue;
        }
        entries[close[i]].samples_us.push_back(sampled[i].sample.us);
      }
    }
    return {};
  }

  /// Replaces the samples of the best few by samples of runs alone, at the scale of the rounds.
  Result<void> run_alone(Screening& screening, std::vector<Entry>& entries) {
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
          columns_[entry->column].failed = true;
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

  void keep(const BoundProblem& problem, const std::vector<Entry>& entries,
            std::vector<FamilyRow>& rows) const {
    const std::vector<std::int64_t> sizes = sizes_of(problem);
    auto row = std::ranges::find(rows, sizes, &FamilyRow::sizes);
    if (row == rows.end()) {
      row = rows.insert(
          rows.end(),
          {.sizes = sizes, .times_us = std::vector<double>(columns_.size()), .spread = 0});
    }
    double best = std::numeric_limits<double>::infinity();
    double scale = 1;
    for (const Entry& entry : entries) {
      const double known = row->times_us[entry.column];
      if (known == 0) continue;
      scale = known / median(entry.samples_us);
      break;
    }
    for (const Entry& entry : entries) {
      const double us = scale * median(entry.samples_us);
      row->times_us[entry.column] = us;
      if (us >= best) continue;
      best = us;
      std::vector<double> apart;
      for (const double sample : entry.samples_us) apart.push_back(std::abs(scale * sample - us));
      row->spread = median(std::move(apart)) / us;
    }
  }

  void fit() {
    for (auto* rows : {&rows_, &validation_}) {
      for (FamilyRow& row : *rows) {
        for (std::size_t c = 0; c < columns_.size(); ++c) {
          if (columns_[c].failed) row.times_us[c] = 0;
        }
      }
    }
    choices_.clear();
    for (const Column& column : columns_) choices_.push_back(column.choice);
    family_ = fit_family(choices_, rows_, free(), predict_);
  }

  /// Returns the predicted time of a column, or 0 if it is not valid at these sizes.
  double predicted_us(std::size_t c, const std::vector<std::int64_t>& sizes) {
    const auto [at, added] = predicted_us_.try_emplace({c, sizes}, 0);
    if (!added) return at->second;
    const auto problem = bound_.try_emplace(sizes, in_.family.at(sizes)).first;
    if (!problem->second) return 0;
    const Result<Candidate> candidate = valid_at(columns_[c], *problem->second);
    if (candidate) at->second = predict_us(*candidate, in_.profile);
    return at->second;
  }

  /// Measures the family's kernels at both sides of breakpoints, where they must be right too.
  Result<void> measure_breakpoints() {
    const DispatchTable::Form form = family_.table.form(family_.kernels.size());
    std::vector<std::pair<std::size_t, std::int64_t>> breakpoints;
    for (std::size_t node = 0; node < form.dims.size(); ++node) {
      if (form.dims[node] < 0) continue;
      breakpoints.emplace_back(static_cast<std::size_t>(form.dims[node]), form.at_most[node]);
    }
    std::ranges::shuffle(breakpoints, random_);
    if (breakpoints.size() > kBreakpoints) breakpoints.resize(kBreakpoints);
    std::size_t done = 0;
    for (const auto& [dim, at_most] : breakpoints) {
      report("measuring at breakpoints", done++, breakpoints.size());
      if (elapsed() > kFirstShare * options_.seconds) break;
      std::vector<std::int64_t> sizes = draw();
      for (const std::int64_t side : {at_most, at_most + 1}) {
        sizes[dim] = side;
        const Result<BoundProblem> problem = at(sizes);
        if (problem)
          KW_TRY(measure(*problem, worth_measuring(*problem, family_.kernels), rows_,
                         family_.kernels));
      }
    }
    return {};
  }

  /// Draws sizes, of which each logarithm is equally likely.
  std::vector<std::int64_t> draw() {
    std::vector<std::int64_t> sizes;
    for (const FreeDim& dim : free()) {
      sizes.push_back(size_at(dim, std::uniform_real_distribution<double>(0, 1)(random_)));
    }
    return sizes;
  }

  /// Adds what validated to what the table is made from.
  void take_validation() {
    for (FamilyRow& row : validation_) {
      if (Result<BoundProblem> problem = at(row.sizes)) problems_.push_back(*std::move(problem));
      rows_.push_back(std::move(row));
    }
    validation_.clear();
  }

  /// Measures what may be near the best at sizes that were not looked at, with the first choices of
  /// the cost model there.
  Result<void> validate() {
    std::vector<BoundProblem> problems;
    std::set<std::vector<std::int64_t>> seen;
    for (const FamilyRow& row : rows_) seen.insert(row.sizes);
    for (int tries = 0; tries < 16 * kValidation && std::ssize(problems) < kValidation; ++tries) {
      const std::vector<std::int64_t> sizes = draw();
      Result<BoundProblem> problem = at(sizes);
      if (problem && seen.insert(sizes).second) problems.push_back(*std::move(problem));
    }
    std::vector<std::vector<std::size_t>> also;  // compiled while those before are measured
    for (const BoundProblem& problem : problems) {
      also.push_back(add_likely(problem, kNewForValidation));
      also.back().insert(also.back().end(), family_.kernels.begin(), family_.kernels.end());
    }
    for (std::size_t i = 0; i < problems.size(); ++i) {
      report("validating", i, problems.size());
      if (i > 3 && elapsed() > options_.seconds) break;
      KW_TRY(measure(problems[i], worth_measuring(problems[i], also[i]), validation_,
                     family_.kernels));
    }
    return {};
  }

  static double distance(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    double sum = 0;
    for (std::size_t d = 0; d < a.size(); ++d) {
      const double apart = std::log2(static_cast<double>(a[d]) / static_cast<double>(b[d]));
      sum += apart * apart;
    }
    return std::sqrt(sum);
  }

  /// Returns at most so many sizes of the validation to tune: those with the largest regrets and
  /// then, since the best there may be unknown, those that are farthest from all tuned ones.
  std::vector<std::vector<std::int64_t>> worth_tuning(std::size_t most) const {
    std::vector<std::pair<double, const FamilyRow*>> ranked;
    for (const FamilyRow& row : validation_) {
      if (anchors_.contains(row.sizes)) continue;
      const double regret = regret_of(family_, row);
      double nearest = std::numeric_limits<double>::infinity();
      for (const auto& anchor : anchors_) nearest = std::min(nearest, distance(anchor, row.sizes));
      constexpr double kFar = 1e-3;  // in regret, for each doubling of a size
      ranked.emplace_back(regret > kWorthTuning ? regret : kFar * std::min(nearest, 10.0), &row);
    }
    std::ranges::sort(ranked, std::greater<>(), [](const auto& one) { return one.first; });
    std::vector<std::vector<std::int64_t>> sizes;
    for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i) {
      sizes.push_back(ranked[i].second->sizes);
    }
    return sizes;
  }

  FamilyRegret regret() const {
    std::vector<double> regrets;
    for (const FamilyRow& row : validation_) {
      const double regret = regret_of(family_, row);
      if (std::isfinite(regret)) regrets.push_back(regret);
    }
    if (regrets.empty()) return {};
    std::ranges::sort(regrets);
    // So few sizes bound 95 % of all by their worst alone.
    const auto rank =
        static_cast<std::size_t>(std::ceil(0.95 * (static_cast<double>(regrets.size()) + 1)) - 1);
    return {.sizes = static_cast<int>(regrets.size()),
            .median = median(regrets),
            .p95 = regrets[std::min(rank, regrets.size() - 1)],
            .worst = regrets.back()};
  }

  FamilyRecord record() const {
    FamilyRecord record;
    record.head.key = in_.key;
    record.head.environment = in_.environment;
    record.head.trust = audit_.trust();
    record.head.table = family_.table.form(family_.kernels.size());
    record.head.regret = regret();
    record.head.created = utc_now();
    std::vector<std::size_t> order = family_.kernels;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (std::ranges::find(family_.kernels, c) == family_.kernels.end()) order.push_back(c);
    }
    for (const std::size_t c : order) record.tried.push_back(columns_[c].choice);
    for (const std::size_t c : family_.kernels) {
      record.head.kernels.push_back(
          {.choice = columns_[c].choice,
           .template_digest = template_digest(*columns_[c].kernel_template, in_.catalog),
           .artifact = columns_[c].build.digest});
    }
    const auto reordered = [&](std::vector<FamilyRow> rows) {
      std::ranges::sort(rows, {}, &FamilyRow::sizes);
      for (FamilyRow& row : rows) {
        std::vector<double> times;
        for (const std::size_t c : order) times.push_back(rounded(row.times_us[c], 6));
        row.times_us = std::move(times);
        row.spread = rounded(row.spread, 3);
      }
      return rows;
    };
    record.matrix = reordered(rows_);
    record.validation = reordered(validation_);
    record.random_seed = options_.random_seed;
    record.audit = audit_;
    record.device_name = device_name_;
    record.device_uuid = in_.device_uuid;
    record.wall_seconds = elapsed();
    return record;
  }

  const FamilyInput& in_;
  const FamilySteps& steps_;
  FamilyOptions options_;
  std::mt19937_64 random_;
  double started_ = 0;
  double next_audit_ = 0;
  std::vector<std::string> free_names_;
  std::vector<Column> columns_;
  std::vector<FamilyRow> rows_;
  std::vector<FamilyRow> validation_;
  std::set<std::vector<std::int64_t>> anchors_;  ///< sizes that were tuned
  FamilyChoice family_;
  std::vector<BoundProblem> problems_;  ///< of the rows
  std::map<std::vector<std::int64_t>, std::vector<Listed>> listed_;
  std::map<std::vector<std::int64_t>, Result<BoundProblem>> bound_;
  std::vector<Choice> choices_;  ///< of the columns, while they are estimated
  const PredictAt predict_ = [this](std::size_t c, std::span<const std::int64_t> sizes) {
    return columns_[c].failed ? 0 : predicted_us(c, {sizes.begin(), sizes.end()});
  };
  std::map<std::pair<std::size_t, std::vector<std::int64_t>>, double> predicted_us_;
  Audit audit_;
  std::string device_name_;
};

}  // namespace

Result<FamilyRecord> tune_family(const FamilyInput& input, const FamilySteps& steps,
                                 FamilyOptions options) {
  return FamilySearch(input, steps, std::move(options)).run();
}

}  // namespace kernwright
