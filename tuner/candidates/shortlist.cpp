#include "tuner/candidates/shortlist.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "model/candidate/size_check.h"
#include "support/names.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// Sizes at which all candidates are ranked, and at which those of the list are.
constexpr int kSizes = 24;
constexpr int kSizesOfTable = 512;
/// Candidates of each size that may come on the list.
constexpr std::size_t kOfEachSize = 20;
/// How many choices a list may have: each is compiled while a program serves.
constexpr std::size_t kMostChoices = 8;
/// How much a further choice must take from the mean of the squared losses.
constexpr double kLeastGain = 0.01 * 0.01;
/// The loss of a choice at a size for which it is not valid.
constexpr double kNotValid = 8;
/// The last interval of a dim has no end. Sizes are drawn up to so many times its first one, and so
/// many times the size that was asked for.
constexpr std::int64_t kWidthOfLast = 64;
constexpr std::int64_t kBeyondAsked = 4;
constexpr std::int64_t kLeastWidth = 16'384;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;

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

/// A dim whose sizes differ within a family.
struct FreeSize {
  const Dim* dim;
  std::int64_t size;  ///< the problem's
  double times = 0;   ///< how many times its default it is, if that depends on other dims; else 0
};
struct SplitDims {
  Problem::Dims fixed;
  std::vector<FreeSize> free;
};
SplitDims split_dims(const BoundProblem& problem) {
  SplitDims split;
  for (const auto& [name, size] : problem.problem().dims()) {
    const Dim& dim = *find_named(problem.operation().dims, name);
    if (dim.match != DimMatch::bucket) {
      split.fixed.emplace_back(name, size);
      continue;
    }
    FreeSize& free = split.free.emplace_back(FreeSize{&dim, size});
    if (!dim.default_size || dim.default_size->names().empty()) continue;
    const Result<std::int64_t> usual = dim.default_size->evaluate(problem.scope());
    free.times = usual && *usual > 0 ? static_cast<double>(size) / static_cast<double>(*usual) : 1;
  }
  return split;
}

/// A problem, and its sizes of the free dims.
struct SizedProblem {
  std::vector<std::int64_t> sizes;
  BoundProblem problem;
};

/// Returns the problem of the same family with these sizes of the free dims, if there is one. Those
/// that follow others are `times` their defaults.
Result<SizedProblem> at_sizes(const BoundProblem& problem, const SplitDims& split,
                              std::vector<std::int64_t> sizes, const std::vector<double>& times) {
  Problem::Dims dims = split.fixed;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (split.free[i].times == 0) dims.emplace_back(split.free[i].dim->name, sizes[i]);
  }
  const auto bind = [&] {
    return BoundProblem::bind(problem.operation(), Problem::make(problem.problem().operation(),
                                                                 dims, problem.problem().flags()));
  };
  KW_ASSIGN(BoundProblem usual, bind());
  if (dims.size() == split.fixed.size() + sizes.size()) return SizedProblem{sizes, usual};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Dim& dim = *split.free[i].dim;
    if (split.free[i].times == 0) continue;
    sizes[i] =
        std::max<std::int64_t>(1, std::llround(times[i] * static_cast<double>(usual.size(dim))));
    dims.emplace_back(dim.name, sizes[i]);
  }
  KW_ASSIGN(BoundProblem bound, bind());
  return SizedProblem{std::move(sizes), std::move(bound)};
}

/// Returns the problem and so many others of its family, which are spread evenly over the
/// logarithms of the sizes.
std::vector<SizedProblem> spread(const BoundProblem& problem, const SplitDims& split, int count) {
  constexpr int kMostDraws = 3;  // of which some are of no problem
  const auto between = [](double first, double last, double at) {
    return first * std::pow(last / first, at);
  };
  std::vector<SizedProblem> samples;
  std::set<std::vector<std::int64_t>> seen;
  samples.push_back({{}, problem});
  for (const FreeSize& free : split.free) samples.front().sizes.push_back(free.size);
  seen.insert(samples.front().sizes);
  const int draws = (split.free.size() == 1 ? 1 : kMostDraws) * count;
  for (const std::vector<double>& places : spread_evenly(split.free.size(), draws)) {
    if (split.free.empty() || samples.size() > static_cast<std::size_t>(count)) break;
    std::vector<std::int64_t> sizes;
    std::vector<double> times;
    for (std::size_t d = 0; d < split.free.size(); ++d) {
      const auto& [dim, size, own_times] = split.free[d];
      const Interval range = interval_of(*dim, size);
      sizes.push_back(size_at({dim->name, range.first, range.last}, places[d]));
      times.push_back(own_times <= 1 ? between(own_times / kBeyondAsked, 1, places[d])
                                     : between(1, own_times * kBeyondAsked, places[d]));
    }
    Result<SizedProblem> other = at_sizes(problem, split, std::move(sizes), times);
    if (other && seen.insert(other->sizes).second) samples.push_back(*std::move(other));
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
  if (split.free.empty()) return {};
  const std::vector<SizedProblem> samples = spread(problem, split, kSizesOfTable);
  std::vector<std::vector<double>> of_sample(samples.size());  // the losses of the choices
  parallel_for(samples.size(), [&](std::size_t i) {
    if (stopped()) return;
    const auto ranked = rank_shortlist(list.choices, catalog, samples[i].problem, profile);
    if (ranked.empty()) return;
    of_sample[i].assign(list.choices.size(), kNotValid);
    for (const Shortlisted& one : ranked) {
      of_sample[i][one.number] = std::max(1.0, one.predicted_us / ranked.front().predicted_us);
    }
    of_sample[i][ranked.front().number] = 1.0;
  });
  if (stopped()) return was_stopped();
  std::vector<std::vector<std::int64_t>> sizes;
  std::vector<std::vector<double>> losses(list.choices.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (of_sample[i].empty()) continue;
    sizes.push_back(samples[i].sizes);
    for (std::size_t c = 0; c < losses.size(); ++c) losses[c].push_back(of_sample[i][c]);
  }
  if (sizes.empty()) return {};
  list.table = DispatchTable::fit(sizes, losses);
  return {};
}

bool is_default(const Candidate& candidate) {
  return candidate.configuration == candidate.kernel_template->default_configuration;
}

/// Returns the numbers of at most `kMostChoices` of the choices `left` whose best is nearest to the
/// best of all.
std::vector<std::size_t> choose_listed(const std::vector<std::vector<double>>& losses,
                                       const std::vector<std::size_t>& left) {
  std::vector<std::size_t> chosen;
  if (left.empty()) return chosen;
  std::vector<double> best(losses[left.front()].size(), kNotValid);
  // Squares, because a size at which a kernel takes twice as long is worse than ten at which one
  // takes a tenth longer.
  const auto mean = [](const std::vector<double>& of) {
    double sum = 0;
    for (const double one : of) sum += std::log(one) * std::log(one);
    return sum / static_cast<double>(of.size());
  };
  while (chosen.size() < std::min(kMostChoices, left.size())) {
    std::optional<std::size_t> next;
    std::vector<double> with_next = best;
    for (const std::size_t c : left) {
      std::vector<double> with(best);
      for (std::size_t i = 0; i < with.size(); ++i) with[i] = std::min(with[i], losses[c][i]);
      if (mean(with) < mean(with_next)) {
        next = c;
        with_next = std::move(with);
      }
    }
    if (!next) break;
    const double gain = mean(best) - mean(with_next);
    if (!chosen.empty() && gain < kLeastGain) break;
    chosen.push_back(*next);
    best = std::move(with_next);
  }
  return chosen;
}

}  // namespace

std::string family_of(const BoundProblem& problem) {
  const SplitDims split = split_dims(problem);
  std::string text = problem.operation().name;
  for (const auto& [name, size] : split.fixed) text += concat(' ', name, '=', size);
  for (const FreeSize& free : split.free) {
    text += concat(' ', free.dim->name, "=#", free.dim->interval(free.size));
  }
  for (const auto& [name, value] : problem.problem().flags()) {
    text += concat(' ', name, '=', value);
  }
  return text;
}

std::vector<FreeDim> free_dims(const BoundProblem& problem) {
  std::vector<FreeDim> dims;
  for (const FreeSize& free : split_dims(problem).free) {
    const Interval range = interval_of(*free.dim, free.size);
    const bool ends = free.dim->interval(free.size) < free.dim->edges.size();
    dims.push_back({free.dim->name, range.first, ends ? range.last : kLargestSize});
  }
  return dims;
}

std::vector<Shortlisted> rank_shortlist(const std::vector<ListedChoice>& choices,
                                        const Catalog& catalog, const BoundProblem& problem,
                                        const DeviceProfile& profile) {
  std::vector<Shortlisted> ranked;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i].choice;
    const auto found = catalog.kernel_template(choice.kernel_template);
    if (!found || !applies(**found, problem, profile)) continue;
    Result<Candidate> made = make_candidate(**found, problem, choice.configuration, profile);
    if (!made || broken_habit(*made) != nullptr) continue;
    const double predicted_us = predict_us(*made, profile);
    ranked.push_back({.number = i, .candidate = *std::move(made), .predicted_us = predicted_us});
  }
  std::ranges::stable_sort(ranked, {}, &Shortlisted::predicted_us);
  const auto kept = std::ranges::find_if(ranked, [&](const Shortlisted& one) {
    return is_default(one.candidate) && keeps_default(one.predicted_us, ranked[0].predicted_us);
  });
  if (kept != ranked.end()) std::rotate(ranked.begin(), kept, kept + 1);
  return ranked;
}

Result<RankedChoices> rank_family(const Catalog& catalog, const BoundProblem& problem,
                                  const DeviceProfile& profile,
                                  const std::function<bool()>& stopped) {
  std::vector<std::string> names;
  for (const FreeDim& dim : free_dims(problem)) names.push_back(dim.name);
  /// The best choices of a size, and the time of the one that is taken there.
  struct Best {
    std::vector<ListedChoice> choices;
    double us;
  };
  const std::vector<SizedProblem> samples = spread(problem, split_dims(problem), kSizes);
  std::vector<std::optional<Result<Best>>> best(samples.size());
  parallel_for(samples.size(), [&](std::size_t i) {
    if (stopped()) return;
    const BoundProblem& one = samples[i].problem;
    best[i] = [&]() -> Result<Best> {
      KW_ASSIGN(const CandidateList list, enumerate_candidates(catalog, one, profile));
      Best found{.choices = {},
                 .us = list.predicted_us[predicted_choice(list.predicted_us, list.default_index)]};
      const std::vector<std::size_t> order = best_of_each_group(list);
      for (std::size_t c = 0; c < std::min(order.size(), kOfEachSize); ++c) {
        found.choices.push_back(
            {.choice = choice_of_bits(list.candidates[order[c]], names), .example = one});
      }
      return found;
    }();
  });
  if (std::ranges::any_of(best, [](const auto& one) { return !one; })) return was_stopped();
  RankedChoices ranked;
  std::vector<ListedChoice>& all = ranked.choices;
  std::vector<double> best_us;
  std::vector<const BoundProblem*> looked_at;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!*best[i]) continue;
    for (ListedChoice& listed : (*best[i])->choices) {
      if (std::ranges::find(all, listed.choice, &ListedChoice::choice) != all.end()) continue;
      all.push_back(std::move(listed));
    }
    best_us.push_back((*best[i])->us);
    looked_at.push_back(&samples[i].problem);
  }
  if (looked_at.empty()) return best.front()->error();
  ranked.losses.resize(all.size());
  parallel_for(all.size(), [&](std::size_t c) {
    for (std::size_t i = 0; i < looked_at.size() && !stopped(); ++i) {
      ranked.losses[c].push_back(loss_of(all[c], catalog, *looked_at[i], profile, best_us[i]));
    }
  });
  if (stopped()) return was_stopped();
  return ranked;
}

Result<Shortlist> make_shortlist(const RankedChoices& ranked, const Catalog& catalog,
                                 const BoundProblem& problem, const DeviceProfile& profile,
                                 const std::function<bool()>& stopped,
                                 const std::function<bool(const ListedChoice&)>& may) {
  std::vector<std::size_t> left;
  for (std::size_t c = 0; c < ranked.choices.size(); ++c) {
    if (may(ranked.choices[c])) left.push_back(c);
  }
  Shortlist list;
  for (const std::size_t c : choose_listed(ranked.losses, left))
    list.choices.push_back(ranked.choices[c]);
  KW_TRY(add_table(list, catalog, problem, profile, split_dims(problem), stopped));
  return list;
}

}  // namespace kernwright
