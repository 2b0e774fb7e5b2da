#include "tuner/candidates/candidate_list.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "model/candidate/candidate_maker.h"
#include "support/processes/threads.h"
#include "support/text.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

/// The largest space here has 2.2 million, of which the rules leave some thousands to look at.
constexpr std::int64_t kMaxPoints = 2'500'000;
/// The limit for one template. Each candidate costs some tens of microseconds and some kilobytes
/// before the search begins; products have about 2,500.
constexpr std::size_t kMaxCandidates = 20'000;
constexpr std::int64_t kTasks = 64;

/// Numbers of the points to look at: all of them, or kMaxPoints spread over the space. The stride
/// is near the golden section and coprime with the size, so that points never repeat and no
/// parameter is left at a few of its values.
class PointSample {
 public:
  explicit PointSample(std::int64_t size) : size_(size) {
    if (!sampled()) return;
    const std::int64_t reach = std::min(size, std::int64_t{1} << 44);  // no product overflows
    stride_ = static_cast<std::int64_t>(static_cast<double>(reach) * 0.6180339887498949);
    while (std::gcd(stride_, size_) != 1) ++stride_;
  }

  bool sampled() const { return size_ > kMaxPoints; }
  std::int64_t count() const { return std::min(size_, kMaxPoints); }
  std::int64_t at(std::int64_t i) const { return i * stride_ % size_; }

 private:
  std::int64_t size_;
  std::int64_t stride_ = 1;
};

/// Runs `work` on ranges of the numbers below `count`, many at a time. Returns what each added, in
/// their order.
template <typename Part, typename Work>
std::vector<Part> in_parts(std::int64_t count, Work work) {
  const std::int64_t tasks = std::clamp<std::int64_t>(count, 1, kTasks);
  std::vector<Part> parts(static_cast<std::size_t>(tasks));
  parallel_for(parts.size(), [&](std::size_t part) {
    const auto task = static_cast<std::int64_t>(part);
    work(count * task / tasks, count * (task + 1) / tasks, parts[part]);
  });
  return parts;
}

/// Returns true if the parameters that count only in chains have their default.
bool counts_alone(const KernelTemplate& kernel_template, const Configuration& configuration) {
  return std::ranges::all_of(kernel_template.space.parameters(), [&](const Parameter& parameter) {
    return parameter.binding != Binding::chain ||
           configuration.at(parameter.name) ==
               kernel_template.default_configuration.at(parameter.name);
  });
}

/// Returns the numbers of the points that obey the rules and that a tuning can tell apart, in the
/// order of the sample.
std::vector<std::int64_t> points_to_try(const KernelTemplate& kernel_template,
                                        const CandidateMaker& maker, const PointSample& sample,
                                        std::size_t broken_habits) {
  using Points = std::vector<std::int64_t>;
  const auto parts =
      in_parts<Points>(sample.count(), [&](std::int64_t begin, std::int64_t end, Points& points) {
        if (!sample.sampled()) return maker.add_obeying(begin, end, points, broken_habits);
        for (std::int64_t i = begin; i < end; ++i) {
          maker.add_obeying(sample.at(i), sample.at(i) + 1, points, broken_habits);
        }
      });
  Points all;
  for (const Points& part : parts) all.insert(all.end(), part.begin(), part.end());
  const auto is_for_chains = [](const Parameter& parameter) {
    return parameter.binding == Binding::chain;
  };
  if (std::ranges::any_of(kernel_template.space.parameters(), is_for_chains)) {
    std::erase_if(all, [&](std::int64_t point) {
      return !counts_alone(kernel_template, kernel_template.space.at(point));
    });
  }
  return all;
}

/// Keeps at most `kMaxCandidates` of them, evenly spread.
void thin_out(std::vector<std::int64_t>& points) {
  const std::size_t count = points.size();
  if (count <= kMaxCandidates) return;
  for (std::size_t i = 0; i < kMaxCandidates; ++i) points[i] = points[i * count / kMaxCandidates];
  points.resize(kMaxCandidates);
}

struct Part {
  std::vector<Candidate> candidates;
  std::vector<double> predicted_us;
};

std::vector<Part> make_candidates(const CandidateMaker& maker, const DeviceProfile& profile,
                                  const std::vector<std::int64_t>& points) {
  return in_parts<Part>(static_cast<std::int64_t>(points.size()),
                        [&](std::int64_t begin, std::int64_t end, Part& part) {
                          for (std::int64_t i = begin; i < end; ++i) {
                            auto candidate = maker.make(points[static_cast<std::size_t>(i)]);
                            if (!candidate) continue;
                            part.predicted_us.push_back(predict_us(candidate.value(), profile));
                            part.candidates.push_back(std::move(candidate).value());
                          }
                        });
}

/// The candidates whose values are the same where a compile within one problem depends on them.
struct SameCompile {
  std::size_t operator()(const Candidate* candidate) const {
    std::size_t hash = std::hash<const void*>()(candidate->kernel_template);
    each(*candidate, [&hash](std::size_t, std::int64_t value) {
      hash = hash * 1'000'003 + static_cast<std::size_t>(value);
      return true;
    });
    return hash;
  }
  bool operator()(const Candidate* a, const Candidate* b) const {
    return a->kernel_template == b->kernel_template &&
           each(*a, [b](std::size_t i, std::int64_t value) {
             return b->configuration.values()[i].second == value;
           });
  }

 private:
  /// Calls `use` with the place and the value of compile-time parameters, while it returns true.
  template <typename Use>
  static bool each(const Candidate& candidate, Use use) {
    const auto& values = candidate.configuration.values();
    const auto& parameters = candidate.kernel_template->space.parameters();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (parameters[i].binding == Binding::compile && !use(i, values[i].second)) return false;
    }
    return true;
  }
};

/// Returns the index of the fastest predicted of the templates' defaults. Every template is
/// represented by the candidate nearest to its default, since a problem may rule that out by one
/// parameter.
std::size_t find_default(const CandidateList& list) {
  std::vector<int> distances;
  std::map<const KernelTemplate*, int> nearest;
  for (const Candidate& candidate : list.candidates) {
    const int distance = distance_from_default(candidate);
    distances.push_back(distance);
    int& least = nearest.try_emplace(candidate.kernel_template, distance).first->second;
    least = std::min(least, distance);
  }
  std::size_t best = list.candidates.size();
  for (std::size_t i = 0; i < list.candidates.size(); ++i) {
    if (distances[i] > nearest.at(list.candidates[i].kernel_template)) continue;
    if (best == list.candidates.size() || list.predicted_us[i] < list.predicted_us[best]) best = i;
  }
  return best;
}

/// Returns a note if the operation has templates that are made for one architecture, an older one,
/// and none for this; else an empty text.
std::string missing_generation(const Catalog& catalog, const Operation& operation, int sm_arch) {
  std::string older;
  int arch = 0;
  for (const KernelTemplate* kernel_template : catalog.templates_of(operation.name)) {
    if (!kernel_template->arch.specific) continue;
    if (kernel_template->runs_on(sm_arch)) return {};
    if (kernel_template->arch.max > sm_arch) continue;
    older += concat(older.empty() ? "" : ", ", kernel_template->name);
    arch = std::max(arch, kernel_template->arch.max);
  }
  if (older.empty()) return {};
  return concat("no template of ", operation.name, " is made for sm_", sm_arch, "; ", older,
                " are for sm_", arch,
                " alone, so what runs here is written for any GPU from sm_80 on, and slower than "
                "this one can be");
}

}  // namespace

int distance_from_default(const Candidate& candidate) {
  const auto& values = candidate.configuration.values();
  const auto& defaults = candidate.kernel_template->default_configuration.values();
  int distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    distance += values[i].second != defaults[i].second ? 1 : 0;
  return distance;
}

Result<CandidateList> enumerate_candidates(const Catalog& catalog, const BoundProblem& problem,
                                           const DeviceProfile& profile,
                                           std::size_t broken_habits) {
  const Operation& operation = problem.operation();
  CandidateList list;
  if (std::string missing = missing_generation(catalog, operation, profile.sm_arch);
      !missing.empty()) {
    list.notes.push_back(std::move(missing));
  }
  for (const KernelTemplate* kernel_template : catalog.templates_of(operation.name)) {
    if (auto fits = applies(*kernel_template, problem, profile); !fits) {
      list.notes.push_back(concat(kernel_template->name, ": ", fits.error().message));
      continue;
    }
    const PointSample sample(kernel_template->space.size());
    const CandidateMaker maker(*kernel_template, problem, profile);
    std::vector<std::int64_t> points =
        points_to_try(*kernel_template, maker, sample, broken_habits);
    const std::size_t obeying = points.size();
    thin_out(points);
    std::size_t valid = 0;
    for (Part& part : make_candidates(maker, profile, points)) {
      valid += part.candidates.size();
      std::move(part.candidates.begin(), part.candidates.end(),
                std::back_inserter(list.candidates));
      list.predicted_us.insert(list.predicted_us.end(), part.predicted_us.begin(),
                               part.predicted_us.end());
    }
    list.rejected += static_cast<int>(sample.count()) - static_cast<int>(obeying) +
                     static_cast<int>(points.size()) - static_cast<int>(valid);
    auto default_candidate = maker.make(kernel_template->default_configuration);
    if (default_candidate && broken_habits == 0) {
      if (const Rule* const habit = broken_habit(*default_candidate)) {
        default_candidate = Error{ErrorCode::not_found, habit->failure(default_candidate->scope)};
      }
    }
    if (valid == 0 && !default_candidate) {
      list.notes.push_back(
          concat(kernel_template->name,
                 ": no configuration is valid; the default: ", default_candidate.error().message));
    }
    if (sample.sampled()) {
      list.notes.push_back(concat(kernel_template->name, ": looked at ", sample.count(), " of ",
                                  kernel_template->space.size(), " configurations"));
    }
    if (points.size() < obeying) {
      list.notes.push_back(concat(kernel_template->name, ": kept ", points.size(), " of ", obeying,
                                  " configurations that obey the rules"));
    }
    if (!sample.sampled() && points.size() == obeying) continue;
    const auto begin = list.candidates.end() - static_cast<std::ptrdiff_t>(valid);
    const bool present = std::any_of(begin, list.candidates.end(), [&](const Candidate& candidate) {
      return candidate.configuration == kernel_template->default_configuration;
    });
    if (default_candidate && !present) {
      list.predicted_us.push_back(predict_us(default_candidate.value(), profile));
      list.candidates.push_back(std::move(default_candidate).value());
    }
  }
  if (list.candidates.empty()) {
    std::string reasons;
    for (const std::string& note : list.notes) reasons += "; " + note;
    return Error{ErrorCode::not_found,
                 concat("no template runs \"", problem.text(), "\" on ", profile.id, reasons)};
  }
  list.default_index = find_default(list);
  std::unordered_map<const Candidate*, int, SameCompile, SameCompile> groups;
  for (const Candidate& candidate : list.candidates) {
    const int next = static_cast<int>(groups.size());
    list.group_of.push_back(groups.emplace(&candidate, next).first->second);
  }
  return list;
}

std::vector<std::size_t> best_of_each_group(const CandidateList& list,
                                            const std::function<bool(const Candidate&)>& banned) {
  std::vector<std::size_t> order(list.candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return banned(list.candidates[i]); });
  if (order.empty()) return order;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(list.predicted_us[a], a) < std::pair(list.predicted_us[b], b);
  });
  if (keeps_default(list.predicted_us[list.default_index], list.predicted_us[order.front()])) {
    const auto found = std::find(order.begin(), order.end(), list.default_index);
    if (found != order.end()) std::rotate(order.begin(), found, found + 1);
  }
  std::set<int> seen;
  std::erase_if(order, [&](std::size_t i) { return !seen.insert(list.group_of[i]).second; });
  return order;
}

std::size_t predicted_choice(std::span<const double> predicted_us, std::size_t default_index) {
  const auto fastest = std::min_element(predicted_us.begin(), predicted_us.end());
  if (keeps_default(predicted_us[default_index], *fastest)) return default_index;
  return static_cast<std::size_t>(fastest - predicted_us.begin());
}

}  // namespace kernwright
