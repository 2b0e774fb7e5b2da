#include "tuner/search/search_budget.h"

#include <algorithm>

namespace kernwright {
namespace {

constexpr double kRaceShare = 0.2;
constexpr double kMostRaceSeconds = 4;
constexpr double kSettleShare = 0.05;
constexpr double kMostSettleSeconds = 3;
constexpr double kAloneShare = 0.08;
constexpr double kMostAloneSeconds = 0.8;
/// Short power blocks follow if the finalists' clocks differ, which is not known before the race.
/// So a race takes the time that screening left over, but not the time that these blocks would
/// need.
constexpr double kBlocksShare = 0.2;
constexpr double kMostBlocksSeconds = 2;
constexpr double kOverrun = 0.1;
/// Long power blocks take tens of seconds, which only long sessions have.
constexpr double kLongSeconds = 60;

}  // namespace

double SearchBudget::settle_seconds() const {
  return std::min(kSettleShare * seconds_, kMostSettleSeconds);
}

bool SearchBudget::long_blocks() const { return seconds_ >= kLongSeconds; }

double SearchBudget::race_reserve() const {
  const double share = kRaceShare * seconds_;
  return long_blocks() ? share : std::min(share, kMostRaceSeconds);
}

double SearchBudget::alone_reserve() const {
  return std::min(kAloneShare * seconds_, kMostAloneSeconds);
}

void SearchBudget::limit(RaceOptions& race, double started, double elapsed) const {
  const double left = seconds_ - alone_reserve() -
                      (long_blocks() ? 0 : std::min(kBlocksShare * seconds_, kMostBlocksSeconds)) -
                      elapsed;
  race.seconds = std::max(race_reserve(), std::min(kMostRaceSeconds, left));
  race.finals_seconds = std::min(race.finals_seconds, race.seconds / 2);
  race.long_blocks = long_blocks();
  if (race.long_blocks) return;
  race.alone_until = started + (1 + kOverrun) * seconds_;
  race.extend_until = started + seconds_;
}

}  // namespace kernwright
