#include "tuner/candidates/warm_starts.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "cache/stores/record_store.h"

namespace kernwright {
namespace {

constexpr std::size_t kNeighbours = 5;
constexpr std::size_t kOwnSku = 8;
constexpr std::size_t kOtherSkus = 4;

struct Neighbour {
  const RecordRun* run = nullptr;
  double distance = 0;
  std::string key;  ///< breaks ties, so that the order of the records never decides
};

/// Returns true if a dim is left at its default, which other dims determine already.
bool is_usual(const Problem& normalized, const Dim& declared) {
  return declared.default_size && std::ranges::none_of(normalized.dims(), [&](const auto& dim) {
           return dim.first == declared.name;
         });
}

std::string_view flag(const Problem& problem, const Flag& declared) {
  const auto& flags = problem.flags();
  const auto found = std::find_if(flags.begin(), flags.end(),
                                  [&](const auto& f) { return f.first == declared.name; });
  if (found != flags.end()) return found->second;
  if (declared.is_formula()) return {};
  return declared.values[static_cast<std::size_t>(declared.default_index)];
}

/// Returns the neighbours, nearest first.
std::vector<Neighbour> neighbours(const BoundProblem& own, const RecordKey& key,
                                  std::span<const RecordRun> records, bool other_sku) {
  std::vector<Neighbour> found;
  std::set<std::string> keys;
  for (const RecordRun& run : records) {
    const RecordHead& record = run.head;
    if (record.grade != RecordGrade::measured || record.key == key) continue;
    if ((record.key.sku != key.sku) != other_sku) continue;
    const Result<Problem> problem = Problem::parse(record.key.problem);
    if (!problem || problem.value().operation() != own.operation().name) continue;
    const auto distance = neighbour_distance(own, problem.value());
    if (!distance || !keys.insert(record.key.text()).second) continue;
    found.push_back({&run, *distance, record.key.text()});
  }
  std::sort(found.begin(), found.end(), [](const Neighbour& a, const Neighbour& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.key < b.key;
  });
  found.resize(std::min(found.size(), kNeighbours));
  return found;
}

/// Returns the winner and the candidates that tied with it, best first.
std::vector<Choice> tie_set(const RecordRun& run) {
  std::vector<Choice> tied{run.head.winner.choice};
  const Lookup<TuningRecord> record = read_record(run.file);
  if (!record) return tied;
  for (const RankedConfiguration& other : record.value->runners_up) {
    if (other.tied) tied.push_back(other.choice);
  }
  return tied;
}

void add_winners(const std::vector<Neighbour>& from, std::size_t most,
                 std::vector<Choice>& choices) {
  std::vector<std::vector<Choice>> ties;
  std::size_t longest = 0;
  for (const Neighbour& neighbour : from) {
    ties.push_back(tie_set(*neighbour.run));
    longest = std::max(longest, ties.back().size());
  }
  const std::size_t end = choices.size() + most;
  for (std::size_t place = 0; place < longest; ++place) {
    for (const auto& tied : ties) {
      if (place >= tied.size() || choices.size() >= end) continue;
      const Choice& one = tied[place];
      if (std::find(choices.begin(), choices.end(), one) == choices.end()) choices.push_back(one);
    }
  }
}

}  // namespace

std::optional<double> neighbour_distance(const BoundProblem& problem, const Problem& other) {
  const Operation& operation = problem.operation();
  for (const TypeVariable& type : operation.type_variables) {
    if (problem.dtype(type.name) != operation.dtype(other, type.name)) return std::nullopt;
  }
  double squares = 0;
  const std::vector<std::int64_t> sizes = operation.sizes(other);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Dim& dim = operation.dims[i];
    if (is_usual(problem.problem(), dim) && is_usual(other, dim)) continue;
    const auto at_least_one = [](std::int64_t size) {
      return static_cast<double>(std::max<std::int64_t>(size, 1));
    };
    const double ratio = std::log2(at_least_one(problem.size(dim)) / at_least_one(sizes[i]));
    squares += ratio * ratio;
  }
  const auto differing = std::ranges::count_if(operation.flags, [&](const Flag& declared) {
    return flag(problem.problem(), declared) != flag(other, declared);
  });
  return std::sqrt(squares) + static_cast<double>(differing);
}

std::vector<Choice> find_warm_starts(const BoundProblem& problem, const RecordKey& key,
                                     std::span<const RecordRun> records) {
  std::vector<Choice> choices;
  add_winners(neighbours(problem, key, records, false), kOwnSku, choices);
  add_winners(neighbours(problem, key, records, true), kOtherSkus, choices);
  return choices;
}

}  // namespace kernwright
