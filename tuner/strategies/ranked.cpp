#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "tuner/strategies/strategies.h"

namespace kernwright::detail {
namespace {

/// The best of each template that are tried before the ranking across templates begins: the model
/// may be wrong about a whole template.
constexpr int kPerTemplate = 4;
/// Holds each further member of a group back by this share, so that the first trials spread over
/// different code; the model knows little of run-time parameters.
constexpr double kGroupPenalty = 0.02;
/// A group whose best measured time is this much above the best of all is left for the end.
constexpr double kTooSlow = 1.15;

/// Candidates in the order of their predicted times, corrected by what was measured: groups that
/// failed or came out slow are put off, never left out.
class Ranked final : public SearchStrategy {
 public:
  explicit Ranked(const SearchSpace& space) : space_(space) {
    std::vector<std::size_t> order(space.predicted_us.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto by = [&order](const std::vector<double>& score) {
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(score[a], a) < std::pair(score[b], b);
      });
    };
    by(space.predicted_us);
    std::vector<double> score = space.predicted_us;
    std::map<int, int> members;
    for (const std::size_t i : order) score[i] *= 1 + kGroupPenalty * members[space.group_of[i]]++;
    by(score);
    std::erase(order, space.default_index);

    std::map<int, int> of_template;
    std::deque<std::size_t> rest;
    for (const std::size_t i : order) {
      const bool first = of_template[space.template_of[i]]++ < kPerTemplate;
      (first ? queue_ : rest).push_back(i);
    }
    queue_.insert(queue_.end(), rest.begin(), rest.end());
  }

  std::vector<std::size_t> propose(std::size_t n) override {
    std::vector<std::size_t> proposal;
    while (proposal.size() < n && !queue_.empty()) {
      const std::size_t next = queue_.front();
      queue_.pop_front();
      (hopeless(next) ? put_off_ : proposal).push_back(next);
    }
    while (proposal.size() < n && queue_.empty() && next_put_off_ < put_off_.size()) {
      proposal.push_back(put_off_[next_put_off_++]);
    }
    return proposal;
  }

  void report(std::size_t candidate, const Trial& trial) override {
    const double us = trial.outcome == Outcome::ok ? trial.measurement.median_us()
                                                   : std::numeric_limits<double>::infinity();
    const auto [group, first] = best_of_group_.emplace(space_.group_of[candidate], us);
    if (!first) group->second = std::min(group->second, us);
    best_us_ = std::min(best_us_, us);
  }

  /// Returns a member of the group that came out fastest so far.
  std::optional<std::size_t> propose_compiled() override {
    auto best = queue_.end();
    double best_us = kTooSlow * best_us_;
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      if (const double us = measured_us(*it); us < best_us) {
        best = it;
        best_us = us;
      }
    }
    if (best == queue_.end()) return std::nullopt;
    const std::size_t candidate = *best;
    queue_.erase(best);
    return candidate;
  }

 private:
  /// Returns the best time of the candidate's group; infinite if nothing of it passed, or was
  /// tried.
  double measured_us(std::size_t candidate) const {
    const auto group = best_of_group_.find(space_.group_of[candidate]);
    return group == best_of_group_.end() ? std::numeric_limits<double>::infinity() : group->second;
  }
  bool hopeless(std::size_t candidate) const {
    return best_of_group_.contains(space_.group_of[candidate]) &&
           measured_us(candidate) > kTooSlow * best_us_;
  }

  const SearchSpace& space_;
  std::deque<std::size_t> queue_;
  std::vector<std::size_t> put_off_;
  std::size_t next_put_off_ = 0;
  std::map<int, double> best_of_group_;
  double best_us_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::unique_ptr<SearchStrategy> make_ranked(const SearchSpace& space, std::uint64_t) {
  return std::make_unique<Ranked>(space);
}

}  // namespace kernwright::detail
