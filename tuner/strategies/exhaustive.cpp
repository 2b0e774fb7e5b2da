#include "tuner/strategies/strategies.h"

namespace kernwright::detail {
namespace {

/// Every candidate in the order of the space, in which candidates that share a compile are
/// neighbours.
class Exhaustive final : public SearchStrategy {
 public:
  explicit Exhaustive(const SearchSpace& space) : space_(space) {}

  std::vector<std::size_t> propose(std::size_t n) override {
    std::vector<std::size_t> proposal;
    for (; proposal.size() < n && next_ < space_.predicted_us.size(); ++next_) {
      if (next_ != space_.default_index) proposal.push_back(next_);
    }
    return proposal;
  }

  void report(std::size_t, const Trial&) override {}
  bool wants_all() const override { return true; }

 private:
  const SearchSpace& space_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<SearchStrategy> make_exhaustive(const SearchSpace& space, std::uint64_t) {
  return std::make_unique<Exhaustive>(space);
}

}  // namespace kernwright::detail
