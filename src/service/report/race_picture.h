#pragma once

#include <string>
#include <vector>

#include "cache/records/record.h"

namespace kernwright {

/// One of those that a record compares.
struct Finalist {
  const RankedConfiguration* ranked = nullptr;
  std::string role;  ///< "winner", "2nd", "3rd, default"
  bool is_default = false;
  /// What tells it apart from all others: the values that are not the winner's, or its template
  /// with the values in which the finalists of that template differ. The values that differ most
  /// stand first.
  std::string differs;
};

/// The winner, the runners-up, and the default where it is none of them. They point into the
/// record.
std::vector<Finalist> finalists_of(const TuningRecord& record);

/// Where a picture stands: in a page, whose text it has its colour from, or in a file of its own,
/// where it has that of the reader's colour scheme.
enum class PicturePlace { page, file };

/// The finals as an SVG, with no script and nothing to ask for: by how much each finalist is slower
/// than the fastest, with its interval and the band of a tie. Empty where there was one finalist
/// alone.
std::string race_picture(const TuningRecord& record, PicturePlace place);

}  // namespace kernwright
