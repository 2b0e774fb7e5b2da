#include "tuner/strategies/prior.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace kernwright::detail {
namespace {

constexpr std::size_t kKeptPart = 4;  ///< a quarter of each template stays
/// Templates with fewer candidates are kept whole.
constexpr std::size_t kFewest = 64;
/// Times the fastest prediction: what is thought slower than that has no say for its template
/// either. Products of odd rows by narrow copies are 30 times slower than the best, and a dozen of
/// them took most of a search of 5 s on an H200.
constexpr double kHopeless = 8;
constexpr std::size_t kChecked = 6;
constexpr double kNearLog = 0.0953;  // ln 1.1

}  // namespace

Prior::Prior(const SearchSpace& space) : space_(space), put_off_(space.predicted_us.size()) {
  const std::vector<double>& predicted = space.predicted_us;
  heard_ = std::any_of(predicted.begin(), predicted.end(),
                       [&](double us) { return us != predicted.front(); }) &&
           std::all_of(predicted.begin(), predicted.end(), [](double us) { return us > 0; });
  if (!heard_) return;
  hopeless_us_ = kHopeless * *std::min_element(predicted.begin(), predicted.end());
  std::map<int, std::vector<std::size_t>> templates;
  for (std::size_t i = 0; i < predicted.size(); ++i) templates[space.template_of[i]].push_back(i);
  for (auto& [ordinal, members] : templates) {
    std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(predicted[a], a) < std::pair(predicted[b], b);
    });
    const std::size_t kept = std::max(members.size() / kKeptPart, kFewest);
    for (std::size_t k = 0; k < members.size(); ++k) {
      put_off_[members[k]] = k >= kept || predicted[members[k]] > hopeless_us_;
    }
    ranked_.push_back(std::move(members));
  }
  std::sort(ranked_.begin(), ranked_.end(), [&](const auto& a, const auto& b) {
    return predicted[a.front()] < predicted[b.front()];
  });
}

std::vector<std::size_t> Prior::favourites(std::size_t count) const {
  std::vector<std::size_t> found;
  if (!heard_) return found;
  std::vector<std::size_t> order;
  for (const auto& members : ranked_) order.push_back(members.front());
  const std::size_t firsts = order.size();
  for (const auto& members : ranked_) order.insert(order.end(), members.begin() + 1, members.end());
  std::sort(order.begin() + static_cast<std::ptrdiff_t>(firsts), order.end(),
            [&](std::size_t a, std::size_t b) {
              return std::pair(space_.predicted_us[a], a) < std::pair(space_.predicted_us[b], b);
            });
  std::set<int> groups;
  for (const std::size_t candidate : order) {
    if (found.size() == count) break;
    if (space_.predicted_us[candidate] > hopeless_us_) continue;
    if (groups.insert(space_.group_of[candidate]).second) found.push_back(candidate);
  }
  return found;
}

void Prior::check(const Board& board) {
  if (checked_ || !heard_) return;
  checked_ = true;
  const std::vector<std::size_t> favourites = this->favourites(kChecked);
  heard_ = std::any_of(favourites.begin(), favourites.end(), [&](std::size_t i) {
    return board.ok(i) && board.log_us(i) <= board.best_log_us() + kNearLog;
  });
}

}  // namespace kernwright::detail
