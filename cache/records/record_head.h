#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records/record.h"
#include <kernwright/result.h>

namespace kernwright {

/// A choice that is served.
struct HeadWinner {
  Choice choice;
  std::string artifact;     ///< digest of its bits, hex; empty if it has none yet
  double measured_us = 0;   ///< median of the rounds; 0: it was only predicted
  double predicted_us = 0;  ///< 0: there is no prediction
  std::optional<KernelPath> best_path = std::nullopt;  ///< nothing: not measured

  friend bool operator==(const HeadWinner&, const HeadWinner&) = default;
};

/// The part of a record that lookups read: everything for matching and serving it. The rest is
/// evidence.
struct RecordHead {
  RecordKey key;
  RecordEnvironment environment;
  RecordGrade grade = RecordGrade::measured;
  Trust trust = Trust::c;
  HeadWinner winner;
  double roofline_us = 0;
  std::string created;                 ///< UTC, ISO 8601
  std::vector<std::string> artifacts;  ///< of runners-up and default: digests, hex, each once

  friend bool operator==(const RecordHead&, const RecordHead&) = default;
};

RecordHead head_of(const TuningRecord& record);
/// The part of a configuration of a record that is served. Its launch paths were measured of the
/// record's winner alone.
HeadWinner winner_of(const RankedConfiguration& ranked, const FinalRounds& rounds);

/// Returns the first runner-up that `fits`, to be served in the winner's place, or nullopt if none
/// fits. The record has only the digest of the winner's template. If the runner-up has another
/// template, its artifact may be of another text, so it counts as having none.
std::optional<HeadWinner> stand_in(const TuningRecord& record,
                                   const std::function<bool(const Choice&)>& fits);

/// Binary, see cache/README.md. `decode_head(encode_head(h))` gives h back, doubles bit by bit.
std::string encode_head(const RecordHead& head);

/// Decodes a head. Bytes after the known fields, from a later version, are ignored. Errors:
/// `corrupt`.
Result<RecordHead> decode_head(std::string_view bytes);

/// One file of a record store.
struct RecordRun {
  std::string file;
  RecordHead head;
};

}  // namespace kernwright
