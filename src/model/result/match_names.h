#pragma once

#include <array>

#include "support/names.h"
#include <kernwright/match.h>

namespace kernwright {

constexpr auto names_of(Match) {
  return std::to_array<std::string_view>(
      {"exact", "family", "recheck", "seed", "bucket", "predicted", "none"});
}

constexpr auto names_of(MissReason) {
  return std::to_array<std::string_view>(
      {"none", "absent", "unreadable", "corrupt", "other_version", "key_mismatch", "other_compiler",
       "other_driver", "other_kernwright", "template_changed", "template_missing", "rule_violated",
       "artifact_missing", "other_shape", "banned", "pinned"});
}

}  // namespace kernwright
