#pragma once

#include <string>
#include <vector>

#include "cache/records/record.h"

namespace kernwright {

/// One of the candidates that a record compares.
struct Finalist {
  const RankedConfiguration* ranked = nullptr;
  std::string role;  ///< "winner", "2nd", "3rd, default"
  bool is_default = false;
  /// The difference from all others: the values that are not the winner's, or its template with the
  /// values in which the finalists of that template differ. The values that differ most come first.
  std::string differs;
};

/// Returns the winner, the runners-up, and the default if it is none of them. They point into the
/// record.
std::vector<Finalist> finalists_of(const TuningRecord& record);

/// The place of a picture: a page, whose text colour it takes, or a file of its own, in which it
/// follows the reader's colour scheme.
enum class PicturePlace { page, file };

/// Returns the finals as an SVG, without scripts and requests: by how much each finalist is slower
/// than the fastest, with its interval and the band of a tie. Empty if there was only one finalist.
std::string race_picture(const TuningRecord& record, PicturePlace place);

}  // namespace kernwright
