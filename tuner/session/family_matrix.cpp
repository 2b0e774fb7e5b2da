#include "tuner/session/family_matrix.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "compile/render.h"
#include "model/candidate/size_check.h"
#include "support/processes/threads.h"
#include "support/statistics.h"
#include "support/try.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// Choices of the cost model at a size that are looked at.
constexpr std::size_t kListed = 300;
/// Choices of a size that may cover others.
constexpr std::size_t kOfEachSize = 16;
/// A choice is measured at a size if it is estimated to take at most so many times as long as the
/// best; at most so many at a time.
constexpr double kNear = 1.15;
/// The same for the best choice of a template of which nothing was measured nearby.
constexpr double kFarthest = 1.3;
constexpr std::size_t kAtATime = 16;

}  // namespace

FamilyMatrix::FamilyMatrix(const FamilyInput& input) : in_(input) {
  for (const FreeDim& dim : free()) free_names_.push_back(dim.name);
}

void FamilyMatrix::add(const Choice& added, const BoundProblem& example) {
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

/// Returns the best of the cost model for a problem, the best first.
const std::vector<FamilyMatrix::Listed>& FamilyMatrix::listed(const BoundProblem& problem) {
  const auto [at, is_new] = listed_.try_emplace(sizes_of(problem));
  if (!is_new) return at->second;
  if (const auto list = enumerate_candidates(in_.catalog, problem, in_.profile)) {
    const std::vector<std::size_t> order = best_of_each_group(*list);
    for (std::size_t i = 0; i < std::min(order.size(), kListed); ++i) {
      at->second.push_back(
          {choice_of_bits(list->candidates[order[i]], free_names_), list->predicted_us[order[i]]});
    }
  }
  return at->second;
}

FamilyEstimate FamilyMatrix::estimate() {
  choices_.clear();
  for (const Column& column : columns_) choices_.push_back(column.choice);
  return {choices_, rows_, predict_};
}

void FamilyMatrix::add_cover(std::span<const BoundProblem> problems, std::size_t most) {
  const FamilyEstimate by = estimate();
  std::vector<Choice> all = choices_;  // behind the columns, estimated to be good
  std::vector<std::size_t> example(all.size());
  std::vector<std::vector<std::int64_t>> sizes;
  for (std::size_t p = 0; p < problems.size(); ++p) {
    sizes.push_back(sizes_of(problems[p]));
    const FamilyEstimate::At at = by.at(sizes[p]);
    std::vector<std::pair<double, const Choice*>> ranked;
    for (const Listed& one : listed(problems[p])) {
      ranked.emplace_back(at.us(one.choice, one.predicted_us), &one.choice);
    }
    std::ranges::stable_sort(ranked, {}, [](const auto& one) { return one.first; });
    if (ranked.size() > kOfEachSize) ranked.resize(kOfEachSize);
    for (const auto& [us, choice] : ranked) {
      if (std::ranges::find(all, *choice) != all.end()) continue;
      all.push_back(*choice);
      example.push_back(p);
    }
  }
  std::vector<std::vector<double>> times_us(problems.size());
  parallel_for(problems.size(), [&](std::size_t p) {
    const FamilyEstimate::At at = by.at(sizes[p]);
    for (std::size_t c = 0; c < all.size(); ++c) {
      const bool failed = c < columns_.size() && columns_[c].failed;
      const Result<Candidate> candidate = valid_at(all[c], problems[p]);
      times_us[p].push_back(
          candidate && !failed ? at.us(all[c], predict_us(*candidate, in_.profile)) : 0);
    }
  });
  for (const std::size_t c : best_additions(times_us, columns_.size(), most)) {
    add(all[c], problems[example[c]]);
  }
}

std::vector<std::size_t> FamilyMatrix::add_likely(const BoundProblem& problem, std::size_t most) {
  const std::vector<std::int64_t> sizes = sizes_of(problem);
  const FamilyEstimate by = estimate();
  const FamilyEstimate::At at = by.at(sizes);
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const double us = at.us(c);
    if (us > 0) best = std::min(best, us);
  }
  std::vector<std::pair<double, const Choice*>> likely;
  for (const Listed& one : listed(problem)) {
    const double us = at.us(one.choice, one.predicted_us);
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
bool FamilyMatrix::is_known_near(std::string_view kernel_template,
                                 const std::vector<std::int64_t>& sizes) const {
  return std::ranges::any_of(rows_, [&](const FamilyRow& row) {
    if (distance(row.sizes, sizes) > 1) return false;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (row.times_us[c] > 0 && columns_[c].choice.kernel_template == kernel_template) return true;
    }
    return false;
  });
}

bool FamilyMatrix::is_column(const Choice& choice) const {
  return std::ranges::find(columns_, choice, &Column::choice) != columns_.end();
}

std::vector<std::size_t> FamilyMatrix::worth_measuring(const BoundProblem& problem,
                                                       std::span<const std::size_t> also) {
  const std::vector<std::int64_t> sizes = sizes_of(problem);
  const auto row = std::ranges::find(rows_, sizes, &FamilyRow::sizes);
  const FamilyEstimate by = estimate();
  const FamilyEstimate::At at = by.at(sizes);
  std::vector<std::pair<double, std::size_t>> ranked;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const double us = at.us(c);
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

Result<Candidate> FamilyMatrix::valid_at(const Choice& choice, const BoundProblem& problem) const {
  KW_ASSIGN(const KernelTemplate* const found, in_.catalog.kernel_template(choice.kernel_template));
  KW_TRY(applies(*found, problem, in_.profile));
  KW_ASSIGN(Candidate candidate,
            make_candidate(*found, problem, choice.configuration, in_.profile));
  if (broken_habit(candidate) == nullptr) return candidate;
  return Error{ErrorCode::not_found, "a habit is broken"};
}

Result<Candidate> FamilyMatrix::candidate_at(std::size_t c, const BoundProblem& problem) const {
  const Column& column = columns_[c];
  KW_ASSIGN(Candidate candidate, valid_at(column.choice, problem));
  KW_ASSIGN(const std::string digest,
            in_.pool.digest(render(candidate, in_.catalog, in_.profile.sm_arch)));
  if (digest == column.build.digest) return candidate;
  return Error{ErrorCode::not_found, "its bits are others at this size"};
}

void FamilyMatrix::keep(const BoundProblem& problem, std::span<const Samples> samples, Use use) {
  std::vector<FamilyRow>& rows = use == Use::fit ? rows_ : validation_;
  const std::vector<std::int64_t> sizes = sizes_of(problem);
  auto row = std::ranges::find(rows, sizes, &FamilyRow::sizes);
  if (row == rows.end()) {
    row = rows.insert(
        rows.end(),
        {.sizes = sizes, .times_us = std::vector<double>(columns_.size()), .spread = 0});
  }
  double best = std::numeric_limits<double>::infinity();
  double scale = 1;
  for (const Samples& one : samples) {
    const double known = row->times_us[one.column];
    if (known == 0) continue;
    scale = known / median(one.us);
    break;
  }
  for (const Samples& one : samples) {
    const double us = scale * median(one.us);
    row->times_us[one.column] = us;
    if (us >= best) continue;
    best = us;
    std::vector<double> apart;
    for (const double sample : one.us) apart.push_back(std::abs(scale * sample - us));
    row->spread = median(std::move(apart)) / us;
  }
}

void FamilyMatrix::take_validation() {
  rows_.insert(rows_.end(), std::make_move_iterator(validation_.begin()),
               std::make_move_iterator(validation_.end()));
  validation_.clear();
}

FamilyChoice FamilyMatrix::fit() {
  for (auto* rows : {&rows_, &validation_}) {
    for (FamilyRow& row : *rows) {
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        if (columns_[c].failed) row.times_us[c] = 0;
      }
    }
  }
  choices_.clear();
  for (const Column& column : columns_) choices_.push_back(column.choice);
  return fit_family(choices_, rows_, free(), predict_);
}

/// Returns the predicted time of a column, or 0 if it is not valid at these sizes. Thread-safe.
double FamilyMatrix::predicted_us(std::size_t c, std::span<const std::int64_t> sizes) {
  std::unique_lock all(mutex_);
  Predicted& at = predicted_[{sizes.begin(), sizes.end()}];
  all.unlock();
  const std::lock_guard lock(at.mutex);
  if (!at.problem) at.problem = in_.family.at(sizes);
  if (!*at.problem) return 0;
  if (at.us.size() <= c) at.us.resize(columns_.size());
  std::optional<double>& us = at.us[c];
  if (!us) {
    const Result<Candidate> candidate = valid_at(columns_[c].choice, **at.problem);
    us = candidate ? predict_us(*candidate, in_.profile) : 0;
  }
  return *us;
}

double distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const double apart = std::log2(static_cast<double>(a[d]) / static_cast<double>(b[d]));
    sum += apart * apart;
  }
  return std::sqrt(sum);
}

}  // namespace kernwright
