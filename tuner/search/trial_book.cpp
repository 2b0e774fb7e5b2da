#include "tuner/search/trial_book.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "support/text.h"
#include "support/try.h"
#include "tuner/search/record_parts.h"

namespace kernwright {

void TrialBook::note(std::string message) {
  if (std::find(notes_.begin(), notes_.end(), message) == notes_.end()) {
    notes_.push_back(std::move(message));
  }
}

void TrialBook::log(const Trial& trial) {
  if (const Result<void> logged = log_.append(trial); !logged) note(logged.error().message);
}

Result<void> TrialBook::still_there(const Trial& trial) const {
  if (!runner_.lost()) return {};
  return Error{ErrorCode::device, concat("the device was lost to ", trial.choice.id(), " (",
                                         to_string(trial.outcome), "): ", trial.detail)};
}

void TrialBook::skip(std::size_t candidate, Trial trial) {
  ++skipped_;
  trial.at_seconds = clock_.elapsed();
  strategy_.report(candidate, trial);
  log(trial);
  trials_.push_back(std::move(trial));
}

Result<void> TrialBook::add(std::size_t candidate, Trial trial,
                            std::span<const double> samples_us) {
  trial.at_seconds = clock_.elapsed();
  log(trial);
  const bool ok = trial.outcome == Outcome::ok;
  ++(ok ? measured_ : failed_);
  if (!ok && failed_to_) failed_to_(trial);
  KW_TRY(still_there(trial));
  Trial corrected = trial;
  if (ok) corrected.measurement.samples_us.assign(samples_us.begin(), samples_us.end());
  strategy_.report(candidate, corrected);
  results_.push_back(
      {candidate, ok ? std::optional(corrected.measurement.median_us()) : std::nullopt});
  trials_.push_back(std::move(trial));
  return {};
}

Result<void> TrialBook::fail(std::size_t index, const Runner::Step& step, std::string_view where) {
  Trial& trial = trials_[index];
  trial.outcome = step.outcome;
  trial.detail = concat(where, step.detail);
  --measured_;
  ++failed_;
  log(trial);
  if (failed_to_) failed_to_(trial);
  return still_there(trial);
}

void TrialBook::add_finals(std::size_t index, std::span<const Sample> samples,
                           const CheckReport& later) {
  Trial& trial = trials_[index];
  merge(trial.check, later);
  trial.measurement = {};
  for (const Sample& sample : samples) {
    trial.measurement.samples_us.push_back(sample.us);
    trial.measurement.sm_mhz.push_back(sample.sm_mhz);
  }
  // Clocks are for all samples or for none.
  std::vector<double>& clocks = trial.measurement.sm_mhz;
  if (std::any_of(clocks.begin(), clocks.end(), [](double mhz) { return mhz <= 0; })) {
    clocks.clear();
  }
  log(trial);
}

}  // namespace kernwright
