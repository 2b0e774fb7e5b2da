#include <numeric>

#include "tuner/learning/random_draws.h"
#include "tuner/strategies/strategies.h"

namespace kernwright::detail {
namespace {

/// Every candidate in random order: the baseline that every other strategy must beat.
class Random final : public SearchStrategy {
 public:
  Random(const SearchSpace& space, std::uint64_t seed)
      : order_(space.predicted_us.size()), default_index_(space.default_index) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    RandomDraws(seed).shuffle(order_);
  }

  std::vector<std::size_t> propose(std::size_t n) override {
    std::vector<std::size_t> proposal;
    for (; proposal.size() < n && next_ < order_.size(); ++next_) {
      if (order_[next_] != default_index_) proposal.push_back(order_[next_]);
    }
    return proposal;
  }

  void report(std::size_t, const Trial&) override {}

 private:
  std::vector<std::size_t> order_;
  std::size_t default_index_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<SearchStrategy> make_random(const SearchSpace& space, std::uint64_t seed) {
  return std::make_unique<Random>(space, seed);
}

}  // namespace kernwright::detail
