#include "tuner/candidates/shortlist.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "support/names.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// Sizes at which all candidates are ranked, and at which those of the list are.
constexpr int kSizes = 24;
constexpr int kSizesOfTable = 512;
/// Candidates of each size that may come on the list.
constexpr std::size_t kOfEachSize = 20;
/// How much a further choice must take from the mean of the squared losses.
constexpr double kLeastGain = 0.01 * 0.01;
/// The loss of a choice at a size for which it is not valid.
constexpr double kNotValid = 8;
/// The last interval of a dim has no end. Sizes are drawn up to so many times its first one, and so
/// many times the size that was asked for.
constexpr std::int64_t kWidthOfLast = 64;
constexpr std::int64_t kBeyondAsked = 4;
constexpr std::int64_t kLeastWidth = 16'384;

Error was_stopped() { return {ErrorCode::unavailable, "the shortlist was stopped"}; }

struct Interval {
  std::int64_t first;
  std::int64_t last;
};

Interval interval_of(const Dim& dim, std::int64_t size) {
  const std::size_t number = dim.interval(size);
  const std::int64_t first = number == 0 ? 1 : dim.edges[number - 1] + 1;
  if (number < dim.edges.size()) return {first, dim.edges[number]};
  return {first, std::max({first * kWidthOfLast, size * kBeyondAsked,
                           dim.edges.empty() ? kLeastWidth : std::int64_t{0}})};
}

/// Returns the problem's dims without those whose sizes follow from others, and these apart, each
/// with how many times its default it is.
struct SplitDims {
  Problem::Dims fixed;
  std::vector<std::pair<const Dim*, std::int64_t>> free;  ///< with the problem's size
  std::vector<std::pair<const Dim*, double>> following;
};
SplitDims split_dims(const BoundProblem& problem) {
  SplitDims split;
  Problem::Dims given;
  std::vector<std::pair<const Dim*, std::int64_t>> with_default;
  for (const auto& [name, size] : problem.problem().dims()) {
    const Dim& dim = *find_named(problem.operation().dims, name);
    if (dim.match == DimMatch::bucket && dim.default_size) {
      with_default.emplace_back(&dim, size);
      continue;
    }
    given.emplace_back(name, size);
    if (dim.match == DimMatch::bucket) {
      split.free.emplace_back(&dim, size);
    } else {
      split.fixed.emplace_back(name, size);
    }
  }
  const auto by_default = BoundProblem::bind(
      problem.operation(),
      Problem::make(problem.problem().operation(), given, problem.problem().flags()));
  for (const auto& [dim, size] : with_default) {
    const double usual = by_default ? static_cast<double>(by_default->size(*dim)) : 0;
    split.following.emplace_back(dim, usual > 0 ? static_cast<double>(size) / usual : 1);
  }
  return split;
}

/// Returns the problem of the same family with these sizes of the free dims, if there is one.
Result<BoundProblem> at_sizes(const BoundProblem& problem, const SplitDims& split,
                              const std::vector<std::int64_t>& sizes) {
  Problem::Dims dims = split.fixed;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    dims.emplace_back(split.free[i].first->name, sizes[i]);
  }
  const auto bind = [&] {
    return BoundProblem::bind(problem.operation(), Problem::make(problem.problem().operation(),
                                                                 dims, problem.problem().flags()));
  };
  Result<BoundProblem> usual = bind();
  if (!usual) return usual;
  bool others = false;
  for (const auto& [dim, times] : split.following) {
    if (times == 1) continue;
    others = true;
    dims.emplace_back(
        dim->name,
        std::max<std::int64_t>(1, std::llround(times * static_cast<double>(usual->size(*dim)))));
  }
  return others ? bind() : usual;
}

/// A problem, and its sizes of the free dims.
struct SizedProblem {
  std::vector<std::int64_t> sizes;
  BoundProblem problem;
};

/// Returns the problem and so many others of its family, which are spread evenly over the
/// logarithms of the sizes.
std::vector<SizedProblem> spread(const BoundProblem& problem, const SplitDims& split, int count) {
  std::vector<SizedProblem> samples;
  std::set<std::vector<std::int64_t>> seen;
  samples.push_back({{}, problem});
  for (const auto& [dim, size] : split.free) samples.front().sizes.push_back(size);
  seen.insert(samples.front().sizes);
  for (int i = 0; i < count && !split.free.empty(); ++i) {
    std::vector<std::int64_t> sizes;
    // Multiples of these, without their whole part, fill a square or a cube evenly.
    static constexpr std::array kSteps = {0.7548776662466927, 0.5698402909980532,
                                          0.3819660112501051};
    for (std::size_t d = 0; d < split.free.size(); ++d) {
      const auto [dim, size] = split.free[d];
      const Interval range = interval_of(*dim, size);
      const double step = (i + 1) * kSteps[d % kSteps.size()];
      const double at = split.free.size() == 1 ? i / (count - 1.0) : step - std::floor(step);
      const double ratio = static_cast<double>(range.last) / static_cast<double>(range.first);
      sizes.push_back(std::clamp<std::int64_t>(
          std::llround(static_cast<double>(range.first) * std::pow(ratio, at)), range.first,
          range.last));
    }
    if (!seen.insert(sizes).second) continue;
    if (Result<BoundProblem> other = at_sizes(problem, split, sizes)) {
      samples.push_back({std::move(sizes), *std::move(other)});
    }
  }
  return samples;
}

/// Returns how many times `best_us` the choice takes at a problem. It is large if the choice is not
/// valid there.
double loss_of(const ListedChoice& choice, const Catalog& catalog, const BoundProblem& problem,
               const DeviceProfile& profile, double best_us) {
  const std::vector<Shortlisted> one = rank_shortlist({choice}, catalog, problem, profile);
  return one.empty() ? kNotValid : std::max(1.0, one.front().predicted_us / best_us);
}

/// Fits the table of a list to predictions at sizes that are spread over the family.
Result<void> add_table(Shortlist& list, const Catalog& catalog, const BoundProblem& problem,
                       const DeviceProfile& profile, const SplitDims& split,
                       const std::function<bool()>& stopped) {
  const bool follows_otherwise =
      std::ranges::any_of(split.following, [](const auto& one) { return one.second != 1; });
  if (split.free.empty() || follows_otherwise) return {};
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<std::vector<double>> losses(list.choices.size());
  for (const SizedProblem& sample : spread(problem, split, kSizesOfTable)) {
    if (stopped()) return was_stopped();
    const auto ranked = rank_shortlist(list.choices, catalog, sample.problem, profile);
    if (ranked.empty()) continue;
    sizes.push_back(sample.sizes);
    for (std::size_t c = 0; c < list.choices.size(); ++c) {
      const auto one = std::ranges::find_if(ranked, [&](const Shortlisted& of) {
        return of.candidate.choice() == list.choices[c].choice;
      });
      losses[c].push_back(one == ranked.end() ? kNotValid
                          : one == ranked.begin()
                              ? 1.0
                              : std::max(1.0, one->predicted_us / ranked.front().predicted_us));
    }
  }
  if (sizes.empty()) return {};
  list.table = DispatchTable::fit(sizes, losses);
  for (const auto& [dim, size] : split.free) {
    const Interval range = interval_of(*dim, size);
    list.free.push_back({dim->name, range.first, range.last});
  }
  return {};
}

bool is_default(const Candidate& candidate) {
  return candidate.configuration == candidate.kernel_template->default_configuration;
}

}  // namespace

std::string family_of(const BoundProblem& problem) {
  const SplitDims split = split_dims(problem);
  std::string text = problem.operation().name;
  for (const auto& [name, size] : split.fixed) text += concat(' ', name, '=', size);
  for (const auto& [dim, size] : split.free) {
    text += concat(' ', dim->name, "=#", dim->interval(size));
  }
  for (const auto& [dim, times] : split.following) {
    if (times != 1) text += concat(' ', dim->name, "=*", std::llround(std::log2(times)));
  }
  for (const auto& [name, value] : problem.problem().flags()) {
    text += concat(' ', name, '=', value);
  }
  return text;
}

std::vector<Shortlisted> rank_shortlist(const std::vector<ListedChoice>& choices,
                                        const Catalog& catalog, const BoundProblem& problem,
                                        const DeviceProfile& profile) {
  std::vector<Shortlisted> ranked;
  for (const ListedChoice& listed : choices) {
    const auto found = catalog.kernel_template(listed.choice.kernel_template);
    if (!found || !applies(**found, problem, profile)) continue;
    Result<Candidate> made = make_candidate(**found, problem, listed.choice.configuration, profile);
    if (!made || broken_habit(*made) != nullptr) continue;
    const double predicted_us = predict_us(*made, profile);
    ranked.push_back({.candidate = *std::move(made), .predicted_us = predicted_us});
  }
  std::ranges::stable_sort(ranked, {}, &Shortlisted::predicted_us);
  const auto kept = std::ranges::find_if(ranked, [&](const Shortlisted& one) {
    return is_default(one.candidate) && keeps_default(one.predicted_us, ranked[0].predicted_us);
  });
  if (kept != ranked.end()) std::rotate(ranked.begin(), kept, kept + 1);
  return ranked;
}

Result<Shortlist> make_shortlist(const Catalog& catalog, const BoundProblem& problem,
                                 const DeviceProfile& profile,
                                 const std::function<bool()>& stopped) {
  const SplitDims split = split_dims(problem);
  const std::vector<SizedProblem> samples = spread(problem, split, kSizes);
  std::vector<ListedChoice> all;
  std::vector<double> best_us;
  std::vector<const BoundProblem*> looked_at;
  for (const auto& [sizes, one] : samples) {
    if (stopped()) return was_stopped();
    const auto list = enumerate_candidates(catalog, one, profile);
    if (!list && looked_at.empty()) return list.error();
    if (!list) continue;
    const std::vector<std::size_t> order = best_of_each_group(*list);
    for (std::size_t i = 0; i < std::min(order.size(), kOfEachSize); ++i) {
      Choice choice = list->candidates[order[i]].choice();
      if (std::ranges::find(all, choice, &ListedChoice::choice) != all.end()) continue;
      all.push_back({.choice = std::move(choice), .example = one});
    }
    best_us.push_back(
        list->predicted_us[predicted_choice(list->predicted_us, list->default_index)]);
    looked_at.push_back(&one);
  }
  std::vector<std::vector<double>> losses(all.size());
  for (std::size_t c = 0; c < all.size(); ++c) {
    for (std::size_t i = 0; i < looked_at.size(); ++i) {
      losses[c].push_back(loss_of(all[c], catalog, *looked_at[i], profile, best_us[i]));
    }
  }
  Shortlist chosen;
  std::vector<double> best(looked_at.size(), kNotValid);
  // Squares, because a size at which a kernel takes twice as long is worse than ten at which one
  // takes a tenth longer.
  const auto mean = [](const std::vector<double>& of) {
    double sum = 0;
    for (const double one : of) sum += std::log(one) * std::log(one);
    return sum / static_cast<double>(of.size());
  };
  while (chosen.choices.size() < std::min(DispatchTable::kMostChoices, all.size())) {
    std::size_t next = all.size();
    std::vector<double> with_next = best;
    for (std::size_t c = 0; c < all.size(); ++c) {
      std::vector<double> with(best);
      for (std::size_t i = 0; i < with.size(); ++i) with[i] = std::min(with[i], losses[c][i]);
      if (mean(with) < mean(with_next)) {
        next = c;
        with_next = std::move(with);
      }
    }
    if (next == all.size()) break;
    const double gain = mean(best) - mean(with_next);
    if (!chosen.choices.empty() && gain < kLeastGain) break;
    chosen.choices.push_back(all[next]);
    best = std::move(with_next);
  }
  KW_TRY(add_table(chosen, catalog, problem, profile, split, stopped));
  return chosen;
}

}  // namespace kernwright
