#include "tuner/strategies/local_search.h"

#include <algorithm>
#include <numeric>

#include "tuner/strategies/strategies.h"

namespace kernwright::detail {
namespace {

constexpr int kPerturbed = 3;  ///< parameters changed at a local optimum
constexpr int kFruitless = 4;  ///< descents without gain before a new chain
/// Descents that one call may end over candidates known already.
constexpr int kDescents = 8;
/// Draws of a chain's start before it is left to others.
constexpr int kStartDraws = 64;

}  // namespace

std::optional<std::size_t> LocalSearch::next() {
  for (int descent = 0; descent < kDescents; ++descent) {
    if (start_) return std::nullopt;
    if (!current_) {
      if (const auto begin = begin_descent()) return begin;
      if (!current_) continue;
    }
    if (const auto neighbour = next_neighbour()) return neighbour;
    std::erase_if(waiting_, [this](std::size_t i) { return board_.reported(i); });
    if (!waiting_.empty()) return std::nullopt;
    end_descent();
  }
  return std::nullopt;
}

/// Follows what is known already.
std::optional<std::size_t> LocalSearch::next_neighbour() {
  while (!queue_.empty()) {
    const std::size_t next = queue_.front();
    queue_.pop_front();
    if (board_.ok(next) && board_.log_us(next) < board_.log_us(*current_)) {
      move_to(next);
    } else if (!board_.taken(next)) {
      waiting_.push_back(next);
      return next;
    }
  }
  return std::nullopt;
}

/// Returns a candidate that must be measured before the descent can go on; nothing if the descent
/// went on from one that is known, or found no start.
std::optional<std::size_t> LocalSearch::begin_descent() {
  std::size_t start = board_.size();
  if (home_) {
    start = neighbourhood_.perturb(*home_, kPerturbed, draws_);
  } else {
    for (int draw = 0; draw < kStartDraws && start == board_.size(); ++draw) {
      const std::size_t drawn = draws_.below(board_.size());
      if (!board_.taken(drawn)) start = drawn;
    }
  }
  if (start == board_.size()) return std::nullopt;
  if (board_.ok(start)) {
    move_to(start);
    return std::nullopt;
  }
  if (board_.failed(start)) {
    fruitless();
    return std::nullopt;
  }
  start_ = start;
  if (board_.taken(start)) return std::nullopt;
  return start;
}

void LocalSearch::end_descent() {
  if (!home_ || board_.log_us(*current_) < board_.log_us(*home_)) {
    home_ = current_;
    fruitless_ = 0;
  } else {
    fruitless();
  }
  current_.reset();
}

void LocalSearch::fruitless() {
  if (++fruitless_ < kFruitless) return;
  home_.reset();
  fruitless_ = 0;
}

void LocalSearch::reported(std::size_t candidate) {
  const bool ok = board_.ok(candidate);
  if (start_ == candidate) {
    start_.reset();
    if (ok) {
      move_to(candidate);
    } else {
      fruitless();
    }
    return;
  }
  if (!ok) return;
  if (board_.log_us(candidate) <= board_.best_log_us()) {
    start_.reset();
    fruitless_ = 0;
    move_to(candidate);
  } else if (current_ && board_.log_us(candidate) < board_.log_us(*current_) &&
             std::find(waiting_.begin(), waiting_.end(), candidate) != waiting_.end()) {
    move_to(candidate);
  }
}

void LocalSearch::move_to(std::size_t candidate) {
  current_ = candidate;
  waiting_.clear();
  std::vector<std::size_t> neighbours = neighbourhood_.of(candidate);
  draws_.shuffle(neighbours);
  queue_.assign(neighbours.begin(), neighbours.end());
}

namespace {

/// Local search alone, from the warm starts; random candidates fill in while it must wait.
class LocalSearchStrategy final : public SearchStrategy {
 public:
  LocalSearchStrategy(const SearchSpace& space, std::uint64_t seed)
      : board_(space),
        neighbourhood_(space),
        search_(neighbourhood_, board_, hash_at(seed, 0)),
        warm_starts_(space.warm_starts.begin(), space.warm_starts.end()),
        random_(board_.size()) {
    std::iota(random_.begin(), random_.end(), std::size_t{0});
    RandomDraws(hash_at(seed, 1)).shuffle(random_);
  }

  std::vector<std::size_t> propose(std::size_t n) override {
    std::vector<std::size_t> proposal;
    while (proposal.size() < n && board_.open() > 0) {
      const std::size_t next = pick();
      if (board_.taken(next)) continue;
      board_.take(next);
      proposal.push_back(next);
    }
    return proposal;
  }

  void report(std::size_t candidate, const Trial& trial) override {
    if (board_.report(candidate, trial)) search_.reported(candidate);
  }

 private:
  std::size_t pick() {
    if (!warm_starts_.empty()) {
      const std::size_t seed = warm_starts_.front();
      warm_starts_.pop_front();
      return seed;
    }
    if (const auto next = search_.next()) return *next;
    while (board_.taken(random_[at_])) ++at_;
    return random_[at_];
  }

  Board board_;
  Neighbourhood neighbourhood_;
  LocalSearch search_;
  std::deque<std::size_t> warm_starts_;
  std::vector<std::size_t> random_;
  std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<SearchStrategy> make_local_search(const SearchSpace& space, std::uint64_t seed) {
  return std::make_unique<LocalSearchStrategy>(space, seed);
}

}  // namespace kernwright::detail
