#include "tuner/search/screening.h"

#include <cmath>
#include <utility>

#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// The device is steady if the medians of two successive blocks of this length differ by less than
/// this share.
constexpr double kBlockSeconds = 0.1;
constexpr double kSteady = 0.003;
/// Pairs of both probes, per call and per block; the latter if the clock does not advance.
constexpr int kPairsPerCall = 8;
constexpr int kPairsPerBlock = 1000;

/// A probe that is this far off is waited for. A smaller deviation is corrected for, or left to
/// the race.
constexpr double kOff = 0.03;
constexpr double kBack = 0.01;
constexpr int kWaitCalls = 500;
/// A disturbance lasts longer than this; an outlier is over earlier.
constexpr double kDisturbanceSeconds = 0.1;
constexpr int kDisturbances = 3;
/// Samples of a candidate in one visit, if the probes were off at its end.
constexpr int kTries = 2;

}  // namespace

Result<std::vector<Runner::Sampled>> Screening::sample(std::span<const Runner::Id> order) {
  auto sampled = runner_.sample(order);
  if (!sampled) return sampled;
  if (runner_.epoch() != epoch_) {
    epoch_ = runner_.epoch();
    probes_.reset();
  }
  std::vector<Runner::Sampled> candidates;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Runner::Sampled& one = sampled.value()[i];
    if (order[i] >= 0) {
      candidates.push_back(std::move(one));
    } else if (one.step.outcome == Outcome::ok) {
      probes_.add(order[i], one.sample);
    } else {
      return Error{ErrorCode::device, concat("a probe kernel failed (", to_string(one.step.outcome),
                                             "): ", one.step.detail)};
    }
  }
  return candidates;
}

Result<double> Screening::settle() {
  std::vector<Runner::Id> pairs;
  for (int i = 0; i < kPairsPerCall; ++i) {
    pairs.push_back(Runner::kSmProbe);
    pairs.push_back(Runner::kDramProbe);
  }
  const double start = clock_();
  std::vector<double> before;
  while (true) {
    std::vector<double> series[2];
    const double block = clock_();
    while (clock_() - block < kBlockSeconds && series[0].size() < kPairsPerBlock) {
      KW_ASSIGN(auto sampled, runner_.sample(pairs));
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        series[i % 2].push_back(sampled[i].sample.us);
      }
    }
    std::vector<double> now{median(std::move(series[0])), median(std::move(series[1]))};
    bool steady = !before.empty();
    for (std::size_t i = 0; steady && i < now.size(); ++i) {
      steady = std::abs(now[i] / before[i] - 1) < kSteady;
    }
    const double seconds = clock_() - start;
    if (steady || seconds >= most_wait_seconds_ || seconds <= 0) return seconds;
    before = std::move(now);
  }
}

Runner::Id Screening::next_probe() {
  return std::exchange(dram_next_, !dram_next_) ? Runner::kDramProbe : Runner::kSmProbe;
}

/// Returns true if the probes were off and are back, or have been waited for long enough.
Result<bool> Screening::steady_again() {
  if (!probes_.off_by(kOff)) return false;
  const std::vector<Runner::Id> probes = {Runner::kSmProbe, Runner::kDramProbe,
                                          Runner::kSmProbe, Runner::kDramProbe,
                                          Runner::kSmProbe, Runner::kDramProbe};
  const double start = clock_();
  const auto waited = [&] { return clock_() - start; };
  probes_.freeze(true);
  for (int calls = 0; calls < kWaitCalls && waited() < most_wait_seconds_; ++calls) {
    KW_TRY(sample(probes));
    if (!probes_.off_by(kBack)) break;
  }
  probes_.freeze(false);
  if (probes_.off_by(kBack)) probes_.reset();  // this is how it is now
  if (waited() > kDisturbanceSeconds && ++disturbances_ == kDisturbances) {
    audit_.merge({{{"reference_drift", Trust::c,
                    concat("a probe kernel left its usual time ", disturbances_, " times")}}});
  }
  return true;
}

Result<Screening::Visit> Screening::visit(const Candidate& candidate, const CompiledKernel& kernel,
                                          double hopeless_us) {
  Visit visit;
  KW_ASSIGN(auto prepared, runner_.prepare(candidate, kernel));
  visit.step = prepared.step;
  if (visit.step.outcome != Outcome::ok) return visit;
  visit.id = prepared.id;
  KW_ASSIGN(auto checked, runner_.check(visit.id, Runner::CheckDepth::screening));
  visit.check = checked.report;
  visit.step = checked.step;

  const auto take = [&](std::span<const Runner::Id> order) -> Result<bool> {
    KW_ASSIGN(auto sampled, sample(order));
    for (const Runner::Sampled& one : sampled) {
      visit.step = one.step;
      if (visit.step.outcome != Outcome::ok) return false;
      visit.samples_us.push_back(one.sample.us);
    }
    return true;
  };
  for (int tries = 0; tries < kTries && visit.step.outcome == Outcome::ok; ++tries) {
    visit.samples_us.clear();
    KW_ASSIGN(auto first, take(std::span(&visit.id, 1)));
    if (!first) break;
    if (visit.samples_us.front() > hopeless_us) return visit;
    const Runner::Id second[] = {visit.id, next_probe()};
    KW_ASSIGN(auto rest, take(second));
    if (!rest) break;
    visit.drift = probes_.drift();
    KW_ASSIGN(auto repeat, steady_again());
    if (!repeat) break;
  }
  if (visit.step.outcome == Outcome::ok) {
    KW_ASSIGN(auto after, runner_.check_after_timing(visit.id));
    visit.step = after.step;
    visit.check.after_timing = visit.step.outcome == Outcome::ok;
  }
  return visit;
}

Result<std::vector<Runner::Sampled>> Screening::top_up(std::span<const Runner::Id> ids) {
  std::vector<Runner::Id> order{next_probe()};
  order.insert(order.end(), ids.begin(), ids.end());
  return sample(order);
}

}  // namespace kernwright
