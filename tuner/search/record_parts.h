#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cache/records/record.h"
#include "device/device_use.h"
#include "model/result/trial.h"
#include "tuner/search/search.h"
#include "tuner/search/search_finals.h"

namespace kernwright {

/// The part of a trial that a record keeps. `artifact` is the digest of the compiled bits, hex.
RankedConfiguration ranked_configuration(const Trial& trial, std::string artifact);

/// Adds the findings of a later check. A proof stays a proof, and the worse of two findings counts.
void merge(CheckReport& proof, const CheckReport& later);

/// Findings of a search, for its record.
struct SearchEvidence {
  const SearchInput& input;
  const TuningOptions& options;
  const TrialBook& book;
  std::span<const Survivor> survivors;  ///< as the finals left them
  const FinalsResult& finals;
  Audit audit;  ///< before, during and after
  std::string_view stop_reason;
  double settle_seconds = 0;
  double wall_seconds = 0;
  DeviceUse device;
};

/// The record of a search. It lacks the digest of the winner's template and the device's UUID,
/// which the session's caller knows.
TuningRecord search_record(const SearchEvidence& evidence);

/// The error that no candidate passed. It says how many there were, how they ended, and the detail
/// of the commonest outcome.
Error none_passed(std::string_view problem, std::span<const Trial> trials);

}  // namespace kernwright
