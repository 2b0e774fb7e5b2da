#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <numeric>

#include "tuner/strategies/bayesian_search.h"
#include "tuner/strategies/board.h"
#include "tuner/strategies/first_choices.h"
#include "tuner/strategies/local_search.h"
#include "tuner/strategies/neighbourhood.h"
#include "tuner/strategies/strategies.h"
#include "tuner/strategies/stratified.h"

namespace kernwright::detail {
namespace {

constexpr std::size_t kMostWarmStarts = 12;
constexpr std::size_t kFirstChoices = 12;
constexpr std::size_t kStratified = 16;
/// Warm starts that are predicted to be this much slower than the fastest wait for the first
/// choices. Winners of shapes with another number of waves are twice as slow here, while the model
/// is rarely off by more than this.
constexpr double kDoubted = 1.3;
/// A shared compile whose best is slower than the best of all by this is not worth more trials.
constexpr double kSlowGroupLog = 0.14;  // ln 1.15

/// An opening, then Bayesian and local search in turn. Each covers for the other's weakness: the
/// one learns from all results, the other finds candidates in basins that the model does not see.
class Portfolio final : public SearchStrategy {
 public:
  Portfolio(const SearchSpace& space, std::uint64_t seed)
      : space_(space),
        board_(space),
        neighbourhood_(space),
        order_(by_prediction(space)),
        bayesian_(space, neighbourhood_, board_, order_, hash_at(seed, 0)),
        local_(neighbourhood_, board_, hash_at(seed, 1)) {
    RandomDraws draws(hash_at(seed, 2));
    const bool predicted = has_predictions(space);
    if (!predicted) draws.shuffle(order_);
    open();
    if (!predicted) open_evenly(draws);
  }

  std::vector<std::size_t> propose(std::size_t n) override {
    std::vector<std::size_t> proposal;
    while (proposal.size() < n && board_.open() > 0) {
      proposal.push_back(pick());
      board_.take(proposal.back());
    }
    return proposal;
  }

  void report(std::size_t candidate, const Trial& trial) override {
    if (!board_.report(candidate, trial)) return;
    if (board_.ok(candidate)) {
      const double log_us = board_.log_us(candidate);
      const auto [best, first] = best_of_group_.emplace(space_.group_of[candidate], log_us);
      if (!first) best->second = std::min(best->second, log_us);
    }
    local_.reported(candidate);
  }

  std::optional<std::size_t> propose_compiled() override;

 private:
  void open();
  void open_evenly(RandomDraws& draws);
  std::size_t pick();

  const SearchSpace& space_;
  Board board_;
  Neighbourhood neighbourhood_;
  std::vector<std::size_t> order_;  ///< all candidates: by prediction, or shuffled without
  BayesianSearch bayesian_;
  LocalSearch local_;
  std::deque<std::size_t> opening_;
  bool locals_turn_ = false;
  std::size_t at_ = 0;                   ///< in `order_`: all before it are taken
  std::map<int, double> best_of_group_;  ///< log times
};

/// First choices and warm starts in turn: few seconds should not go to the one kind alone.
void Portfolio::open() {
  const std::vector<std::size_t> choices = first_choices(space_, kFirstChoices);
  std::deque<std::size_t> doubted;
  std::size_t at = 0;
  for (std::size_t i = 0; i < std::min(space_.warm_starts.size(), kMostWarmStarts); ++i) {
    const std::size_t warm = space_.warm_starts[i];
    if (!choices.empty() &&
        space_.predicted_us[warm] > kDoubted * space_.predicted_us[choices.front()]) {
      doubted.push_back(warm);
      continue;
    }
    if (at < choices.size()) opening_.push_back(choices[at++]);
    opening_.push_back(warm);
  }
  for (; at < choices.size(); ++at) opening_.push_back(choices[at]);
  opening_.insert(opening_.end(), doubted.begin(), doubted.end());
}

void Portfolio::open_evenly(RandomDraws& draws) {
  StratifiedDraws stratified(neighbourhood_, board_.size());
  const auto allowed = [this](std::size_t i) {
    return !board_.taken(i) && std::find(opening_.begin(), opening_.end(), i) == opening_.end();
  };
  for (std::size_t draw = 0; draw < kStratified; ++draw) {
    if (const auto next = stratified.next(draws, allowed)) opening_.push_back(*next);
  }
}

std::size_t Portfolio::pick() {
  while (!opening_.empty()) {
    const std::size_t next = opening_.front();
    opening_.pop_front();
    if (!board_.taken(next)) return next;
  }
  // Before the first result nobody has anything to go on.
  for (int turn = 0; turn < 2 && !board_.results().empty(); ++turn) {
    locals_turn_ = !locals_turn_;
    if (const auto next = locals_turn_ ? local_.next() : bayesian_.next()) return *next;
  }
  while (board_.taken(order_[at_])) ++at_;
  return order_[at_];
}

std::optional<std::size_t> Portfolio::propose_compiled() {
  std::optional<std::size_t> chosen;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t k = at_; k < order_.size(); ++k) {
    const std::size_t i = order_[k];
    if (board_.taken(i)) continue;
    const auto group = best_of_group_.find(space_.group_of[i]);
    if (group == best_of_group_.end()) continue;
    if (group->second > board_.best_log_us() + kSlowGroupLog) continue;
    const double score = bayesian_.fitted() ? bayesian_.expected_log(i) : group->second;
    if (score >= least) continue;
    chosen = i;
    least = score;
  }
  if (chosen) board_.take(*chosen);
  return chosen;
}

}  // namespace

std::unique_ptr<SearchStrategy> make_portfolio(const SearchSpace& space, std::uint64_t seed) {
  return std::make_unique<Portfolio>(space, seed);
}

}  // namespace kernwright::detail
