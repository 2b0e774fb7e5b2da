#pragma once

#include <string>
#include <string_view>

#include "bench/simulation/recorded_space.h"

namespace kernwright {

/// Returns whether `text` starts as a trial log does: with the line of a session.
bool is_trial_log(std::string_view text);

/// The last session of a trial log as a space, in the order of its trials, so that the default is
/// the first. All candidates were screened alike, which makes their samples; what a finalist took
/// later, warm and at another clock, is its `final_us`. `file` is the log's name in messages.
/// Errors: `corrupt` naming file, line and defect.
Result<RecordedSpace> read_logged_trials(std::string_view text, const std::string& file);

}  // namespace kernwright
