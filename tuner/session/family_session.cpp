#include "tuner/session/family_session.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "compile/render.h"
#include "support/statistics.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "support/try.h"
#include "support/utc.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/cost/cost_model.h"
#include "tuner/session/family_matrix.h"
#include "tuner/session/family_rows.h"

namespace kernwright {
namespace {

/// The most sizes that are tuned at first, and the budget of one.
constexpr int kAnchors = 6;
constexpr double kLeastAnchorSeconds = 2;
constexpr double kAnchorShare = 0.035;
/// The shares of the budget after which no more sizes are tuned, and measured, at first.
constexpr double kFirstAnchorsShare = 0.25;
constexpr double kFirstShare = 0.75;
/// Finalists of an anchor that are measured at all sizes where they may be near the best.
constexpr std::size_t kOfAnchor = 4;
/// Choices of the cost model that are compiled to cover all sizes, each time a size comes up, and
/// for one that validates.
constexpr std::size_t kCover = 24;
constexpr std::size_t kNew = 1;
constexpr std::size_t kNewForValidation = 4;
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
/// About how long the sizes take at which the finalists of a further size are measured.
constexpr double kLearnSeconds = 3;

class FamilySearch {
  using Use = FamilyMatrix::Use;

 public:
  FamilySearch(const FamilyInput& input, const FamilySteps& steps, FamilyOptions options)
      : in_(input), steps_(steps), options_(std::move(options)), random_(options_.random_seed) {
    if (!options_.clock_seconds) options_.clock_seconds = steady_seconds;
    started_ = options_.clock_seconds();
  }

  Result<FamilyRecord> run() {
    KW_ASSIGN(problems_, first_problems());
    KW_TRY(tune_anchors());
    KW_TRY(measure_matrix(kFirstShare * options_.seconds));
    KW_TRY(fit());
    KW_TRY(measure_breakpoints());
    KW_TRY(fit());
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
      for (const FamilyRow& row : matrix_.rows(Use::validation)) {
        if (Result<BoundProblem> problem = at(row.sizes)) problems_.push_back(*std::move(problem));
      }
      matrix_.take_validation();
      KW_TRY(measure_matrix(options_.seconds - validated));
      KW_TRY(fit());
    }
    KW_TRY(check_kernels());
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
                       .kernels = static_cast<int>(matrix_.columns().size()),
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

  double anchor_seconds() const {
    return std::max(kLeastAnchorSeconds, kAnchorShare * options_.seconds);
  }

  Result<void> tune_anchor(const BoundProblem& problem) {
    anchors_.insert(sizes_of(problem));
    KW_ASSIGN(const TuningRecord record, steps_.tune(problem, anchor_seconds()));
    audit_.merge(record.audit);
    device_name_ = record.device_name;
    matrix_.add(record.winner.choice, problem);
    for (std::size_t i = 0; i + 1 < kOfAnchor && i < record.runners_up.size(); ++i) {
      matrix_.add(record.runners_up[i].choice, problem);
    }
    return {};
  }

  /// Tunes as many of the problems as the budget has time for, from one end to the other.
  Result<void> tune_anchors() {
    const int anchors = std::clamp(
        static_cast<int>(kFirstAnchorsShare * options_.seconds / anchor_seconds()), 2, kAnchors);
    std::set<std::size_t> taken;
    for (int i = 0; i < anchors; ++i) {
      taken.insert(static_cast<std::size_t>(
          std::llround(i * static_cast<double>(problems_.size() - 1) / (anchors - 1))));
    }
    std::size_t done = 0;
    for (const std::size_t at : taken) {
      report("tuning sizes", done++, taken.size());
      if (done > 1 && elapsed() > kFirstAnchorsShare * options_.seconds) break;
      KW_TRY(tune_anchor(problems_[at]));
    }
    return {};
  }

  /// Orders the problems so that each comes as far as possible from all before it: there may be
  /// time for the first ones alone.
  void spread_problems() {
    std::vector<double> nearest(problems_.size(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 1; i < problems_.size(); ++i) {
      const std::vector<std::int64_t> last = sizes_of(problems_[i - 1]);
      std::size_t farthest = i;
      for (std::size_t j = i; j < problems_.size(); ++j) {
        nearest[j] = std::min(nearest[j], distance(last, sizes_of(problems_[j])));
        if (nearest[j] > nearest[farthest]) farthest = j;
      }
      std::swap(problems_[i], problems_[farthest]);
      std::swap(nearest[i], nearest[farthest]);
    }
  }

  /// Measures at the problems what may be near the best there, by what was measured so far, until
  /// nothing is left or the time is over.
  Result<void> measure_matrix(double until) {
    spread_problems();
    matrix_.add_cover(problems_, kCover);
    for (int pass = 0; pass < kPasses; ++pass) {
      std::size_t planned = 0;
      bool measured = false;
      for (std::size_t i = 0; i < problems_.size(); ++i) {
        report("measuring kernels at sizes", i, problems_.size());
        if (i > 2 && elapsed() > until) return {};
        for (; planned < std::min(i + kAhead, problems_.size()); ++planned) {
          matrix_.add_likely(problems_[planned], kNew);
        }
        const std::vector<std::size_t> columns = matrix_.worth_measuring(problems_[i], {});
        if (columns.empty()) continue;
        KW_TRY(rows_.measure(problems_[i], columns, Use::fit));
        measured = true;
      }
      if (!measured) break;
    }
    return {};
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
          KW_TRY(rows_.measure(*problem, matrix_.worth_measuring(*problem, family_.kernels),
                               Use::fit, family_.kernels));
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

  /// Measures what may be near the best at sizes that were not looked at, with the first choices of
  /// the cost model there.
  Result<void> validate() {
    std::vector<BoundProblem> problems;
    std::set<std::vector<std::int64_t>> seen;
    for (const FamilyRow& row : matrix_.rows(Use::fit)) seen.insert(row.sizes);
    for (int tries = 0; tries < 16 * kValidation && std::ssize(problems) < kValidation; ++tries) {
      const std::vector<std::int64_t> sizes = draw();
      Result<BoundProblem> problem = at(sizes);
      if (problem && seen.insert(sizes).second) problems.push_back(*std::move(problem));
    }
    std::vector<std::vector<std::size_t>> also;  // compiled while those before are measured
    for (const BoundProblem& problem : problems) {
      also.push_back(matrix_.add_likely(problem, kNewForValidation));
      also.back().insert(also.back().end(), family_.kernels.begin(), family_.kernels.end());
    }
    for (std::size_t i = 0; i < problems.size(); ++i) {
      report("validating", i, problems.size());
      if (i > 3 && elapsed() > options_.seconds) break;
      KW_TRY(rows_.measure(problems[i], matrix_.worth_measuring(problems[i], also[i]),
                           Use::validation, family_.kernels));
    }
    return {};
  }

  /// Chooses the family's kernels and table. Errors: `not_found` if no kernel is right.
  Result<void> fit() {
    const std::vector<FamilyRow>& rows = matrix_.rows(Use::fit);
    const auto is_known = [&](std::size_t c) {
      return !matrix_.columns()[c].failed &&
             std::ranges::any_of(rows, [c](const FamilyRow& row) { return row.times_us[c] > 0; });
    };
    for (std::size_t c = 0; c < matrix_.columns().size(); ++c) {
      if (!is_known(c)) continue;
      family_ = matrix_.fit();
      return {};
    }
    return Error{ErrorCode::not_found,
                 concat("no kernel could be measured for ", in_.family.text())};
  }

  /// Checks the family's kernels that no validation did, each at a size for which the table takes
  /// it. If one is wrong, makes another family of the rest.
  Result<void> check_kernels() {
    const auto failed = [&](std::size_t c) { return matrix_.columns()[c].failed; };
    const auto unchecked = [&](std::size_t c) { return !matrix_.columns()[c].checked; };
    while (true) {
      if (std::ranges::any_of(family_.kernels, failed)) KW_TRY(fit());
      const auto next = std::ranges::find_if(family_.kernels, unchecked);
      if (next == family_.kernels.end()) return {};
      const std::size_t column = *next;
      if (const std::optional<BoundProblem> problem = taken_at(next - family_.kernels.begin())) {
        KW_TRY(rows_.measure(*problem, std::array{column}, Use::fit, std::array{column}));
      }
      if (unchecked(column)) matrix_.fail(column);
    }
  }

  /// Returns a problem for which the table takes this one of its kernels, if there is one among
  /// those that were measured for it, and others.
  std::optional<BoundProblem> taken_at(std::ptrdiff_t kernel) {
    const std::size_t column = family_.kernels[static_cast<std::size_t>(kernel)];
    constexpr int kDraws = 256;
    std::vector<std::vector<std::int64_t>> sizes;
    for (const FamilyRow& row : matrix_.rows(Use::fit)) sizes.push_back(row.sizes);
    for (int i = 0; i < kDraws; ++i) sizes.push_back(draw());
    for (const std::vector<std::int64_t>& one : sizes) {
      if (family_.table.order(one).front() != kernel) continue;
      if (std::ranges::find(matrix_.rows(Use::validation), one, &FamilyRow::sizes) !=
          matrix_.rows(Use::validation).end()) {
        continue;
      }
      Result<BoundProblem> problem = at(one);
      if (problem && matrix_.candidate_at(column, *problem)) return *std::move(problem);
    }
    return std::nullopt;
  }

  /// Returns at most so many sizes of the validation to tune: those with the largest regrets and
  /// then, since the best there may be unknown, those that are farthest from all tuned ones.
  std::vector<std::vector<std::int64_t>> worth_tuning(std::size_t most) const {
    std::vector<std::pair<double, const FamilyRow*>> ranked;
    for (const FamilyRow& row : matrix_.rows(Use::validation)) {
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

  /// Returns true if each size of the ranges has a row that the table was made from.
  bool all_are_measured() const {
    double sizes = 1;
    for (const FreeDim& dim : free()) sizes *= static_cast<double>(dim.last - dim.first + 1);
    return static_cast<double>(matrix_.rows(Use::fit).size()) == sizes;
  }

  FamilyRegret regret() const {
    std::vector<double> regrets;
    for (const FamilyRow& row : matrix_.rows(all_are_measured() ? Use::fit : Use::validation)) {
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
    Audit audit = audit_;
    audit.merge(rows_.audit());
    record.head.trust = audit.trust();
    record.head.table = family_.table.form(family_.kernels.size());
    record.head.regret = regret();
    record.head.created = utc_now();
    std::vector<std::size_t> order = family_.kernels;
    for (std::size_t c = 0; c < matrix_.columns().size(); ++c) {
      if (std::ranges::find(family_.kernels, c) == family_.kernels.end()) order.push_back(c);
    }
    for (const std::size_t c : order) record.tried.push_back(matrix_.columns()[c].choice);
    for (const std::size_t c : family_.kernels) {
      record.head.kernels.push_back(
          {.choice = matrix_.columns()[c].choice,
           .template_digest = template_digest(*matrix_.columns()[c].kernel_template, in_.catalog),
           .artifact = matrix_.columns()[c].build.digest});
    }
    const auto reordered = [&](std::vector<FamilyRow> rows) {
      std::ranges::sort(rows, {}, &FamilyRow::sizes);
      for (FamilyRow& row : rows) {
        std::vector<double> times;
        for (const std::size_t c : order) times.push_back(rounded(row.times_us[c], 6));
        row.times_us = std::move(times);
        row.spread = rounded(row.spread, 3);
        row.anchor = anchors_.contains(row.sizes);
      }
      return rows;
    };
    record.matrix = reordered(matrix_.rows(Use::fit));
    record.validation = reordered(matrix_.rows(Use::validation));
    record.random_seed = options_.random_seed;
    record.audit = std::move(audit);
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
  FamilyMatrix matrix_{in_};
  FamilyRows rows_{in_, steps_, options_, matrix_, random_};
  std::set<std::vector<std::int64_t>> anchors_;  ///< sizes that were tuned
  FamilyChoice family_;
  std::vector<BoundProblem> problems_;  ///< of the rows
  Audit audit_;                         ///< of the sizes that were tuned
  std::string device_name_;
};

}  // namespace

Result<FamilyRecord> tune_family(const FamilyInput& input, const FamilySteps& steps,
                                 FamilyOptions options) {
  return FamilySearch(input, steps, std::move(options)).run();
}

}  // namespace kernwright
