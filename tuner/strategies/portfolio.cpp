#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "tuner/learning/boosted_trees.h"
#include "tuner/learning/feature_columns.h"
#include "tuner/strategies/board.h"
#include "tuner/strategies/local_search.h"
#include "tuner/strategies/neighbourhood.h"
#include "tuner/strategies/prior.h"
#include "tuner/strategies/process_search.h"
#include "tuner/strategies/strategies.h"
#include "tuner/strategies/stratified.h"
#include "tuner/strategies/tree_model.h"

namespace kernwright::detail {
namespace {

/// Of 15 proposals in turn. Each source covers for another's weakness: trees for many features,
/// the process for few results, local search for basins that the models do not see. Where none has
/// a proposal chance makes it.
constexpr std::array<int, 3> kShares = {3, 7, 5};
enum class Source : std::size_t { trees, process, local };

constexpr std::size_t kStratified = 16;
constexpr std::size_t kMostSeeds = 12;
/// With 12 instead of 6 one within 1 % of the best is found after 24 candidates instead of 34, the
/// median of six landscapes of an H200 (`strategy_regret`).
constexpr std::size_t kMostPredicted = 12;
constexpr std::size_t kRefit = 16;  ///< results between two fits of the models
/// A shared compile whose best is slower than the best of all by this is not worth more trials.
constexpr double kSlowGroupLog = 0.14;  // ln 1.15

FeatureTable parameters_of(const SearchSpace& space) {
  FeatureColumns columns;
  for (std::size_t i = 0; i < space.configurations.size(); ++i) {
    columns.begin_row();
    columns.set("template", space.template_of[i]);
    for (const auto& [name, value] : space.configurations[i]->values()) {
      columns.set(name, static_cast<double>(value));
    }
  }
  return FeatureTable(columns.take());
}

/// See make_portfolio.
class Portfolio final : public SearchStrategy {
 public:
  Portfolio(const SearchSpace& space, std::uint64_t seed)
      : space_(space),
        board_(space),
        neighbourhood_(space),
        features_(space.features),
        parameters_(parameters_of(space)),
        prior_(space),
        trees_(features_, board_, hash_at(seed, 0)),
        process_(parameters_, neighbourhood_, board_, trees_, hash_at(seed, 1)),
        local_(neighbourhood_, board_, hash_at(seed, 2)),
        random_(board_.size()) {
    RandomDraws draws(hash_at(seed, 3));
    std::iota(random_.begin(), random_.end(), std::size_t{0});
    draws.shuffle(random_);
    plan_first_batch(draws);
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
    if (board_.results().size() > first_batch_) prior_.check(board_);
  }

  std::optional<std::size_t> propose_compiled() override;

  std::optional<double> optimistic_us() const override {
    const auto log_us = trees_.optimistic_log_us();
    if (!log_us) return std::nullopt;
    return std::exp(*log_us);
  }

 private:
  void plan_first_batch(RandomDraws& draws);
  std::size_t pick();
  std::optional<std::size_t> ask(std::size_t source);
  std::size_t chance();
  void fit_trees();

  const SearchSpace& space_;
  Board board_;
  Neighbourhood neighbourhood_;
  FeatureTable features_;
  FeatureTable parameters_;
  Prior prior_;
  TreeModel trees_;
  ProcessSearch process_;
  LocalSearch local_;
  std::deque<std::size_t> first_;
  std::vector<std::size_t> random_;
  std::size_t at_ = 0;
  std::size_t first_batch_ = 0;  ///< how many it proposes before the models begin
  std::array<int, kShares.size()> credit_ = {};
  std::size_t fitted_results_ = 0;
  bool process_is_stale_ = false;        ///< to be fitted at its next turn
  std::map<int, double> best_of_group_;  ///< log times
};

/// Seeds, the cost model's favourites, and stratified draws.
void Portfolio::plan_first_batch(RandomDraws& draws) {
  const auto add = [this](std::size_t i) {
    if (board_.taken(i) || std::find(first_.begin(), first_.end(), i) != first_.end()) return;
    first_.push_back(i);
  };
  for (std::size_t i = 0; i < std::min(space_.seeds.size(), kMostSeeds); ++i) add(space_.seeds[i]);
  for (const std::size_t i : prior_.favourites(kMostPredicted)) add(i);
  const std::size_t end = first_.size() + kStratified;
  StratifiedDraws stratified(neighbourhood_, board_.size());
  const auto allowed = [this](std::size_t i) { return !board_.taken(i) && prior_.keeps(i); };
  for (std::size_t draw = 0; draw < 4 * kStratified && first_.size() < end; ++draw) {
    if (const auto next = stratified.next(draws, allowed)) add(*next);
  }
  first_batch_ = first_.size();
}

std::size_t Portfolio::pick() {
  while (!first_.empty()) {
    const std::size_t next = first_.front();
    first_.pop_front();
    if (!board_.taken(next)) return next;
  }
  if (board_.results().size() >= fitted_results_ + kRefit || fitted_results_ == 0) fit_trees();
  // Weighted round robin: the turn goes to whoever is owed most.
  constexpr int kTurns = std::accumulate(kShares.begin(), kShares.end(), 0);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t s = 0; s < kShares.size(); ++s) credit_[s] += kShares[s];
    const auto owed = std::max_element(credit_.begin(), credit_.end());
    *owed -= kTurns;
    if (const auto next = ask(static_cast<std::size_t>(owed - credit_.begin()))) return *next;
  }
  return chance();
}

std::optional<std::size_t> Portfolio::ask(std::size_t source) {
  switch (static_cast<Source>(source)) {
    case Source::trees:
      return trees_.next();
    case Source::process:
      // Apart from the trees' fit, so that no call takes as long as both.
      if (std::exchange(process_is_stale_, false)) process_.fit();
      return process_.next();
    case Source::local:
      return local_.next();
  }
  return std::nullopt;
}

/// Any open candidate; what the cost model expects to be slow comes last.
std::size_t Portfolio::chance() {
  for (std::size_t look = at_; look < random_.size(); ++look) {
    if (board_.taken(random_[look])) {
      if (look == at_) ++at_;
    } else if (prior_.keeps(random_[look])) {
      return random_[look];
    }
  }
  return random_[at_];
}

void Portfolio::fit_trees() {
  if (board_.results().empty()) return;
  fitted_results_ = board_.results().size();
  trees_.fit([this](std::size_t i) { return prior_.keeps(i); });
  process_is_stale_ = true;
}

std::optional<std::size_t> Portfolio::propose_compiled() {
  std::vector<std::size_t> options;
  for (std::size_t i = 0; i < board_.size(); ++i) {
    if (board_.taken(i)) continue;
    const auto group = best_of_group_.find(space_.group_of[i]);
    if (group == best_of_group_.end()) continue;
    if (group->second <= board_.best_log_us() + kSlowGroupLog) options.push_back(i);
  }
  if (options.empty()) return std::nullopt;
  std::vector<double> score;
  if (trees_.fitted()) {
    score = trees_.lower(options, 0);
  } else {
    for (const std::size_t i : options) score.push_back(best_of_group_.at(space_.group_of[i]));
  }
  const auto best = std::min_element(score.begin(), score.end()) - score.begin();
  const std::size_t chosen = options[static_cast<std::size_t>(best)];
  board_.take(chosen);
  return chosen;
}

}  // namespace

std::unique_ptr<SearchStrategy> make_portfolio(const SearchSpace& space, std::uint64_t seed) {
  return std::make_unique<Portfolio>(space, seed);
}

}  // namespace kernwright::detail
