#pragma once

#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// How well an answer fits the problem and today's environment, best first.
enum class Match {
  exact,       ///< measured for this problem, SKU, policy and environment
  family,      ///< as exact, but measured for a range of sizes that has this one
  recheck,     ///< as exact, but measured with another driver or version of kernwright
  stale_code,  ///< "seed": as exact, but the template's text or the compiler has changed since
  bucket,      ///< measured for another shape of the same interval
  predicted,   ///< ranked by the cost model
  none
};

/// Why a lookup returned nothing, or a match worse than `Match::exact`.
enum class MissReason {
  none,              ///< it did not miss
  absent,            ///< no entry
  unreadable,        ///< the file system refused to read it
  corrupt,           ///< magic, length, digest or format is wrong
  other_version,     ///< it has another format version
  key_mismatch,      ///< the key inside the file is not the one that was asked for
  other_compiler,    ///< stale_code: another NVRTC
  other_driver,      ///< recheck: another driver
  other_kernwright,  ///< recheck: another version of kernwright
  template_changed,  ///< stale_code: the template's text has changed
  template_missing,  ///< the winner's template does not exist here
  rule_violated,     ///< the winner's configuration is not a candidate here
  artifact_missing,  ///< the record is there, its bits are not
  other_shape,       ///< bucket: measured for another shape of the same interval
  banned,            ///< the winner is banned; the next best is served, if there is one
  pinned             ///< stale_code: a person pinned it, and no record has it
};

KERNWRIGHT_API std::string_view to_string(Match match);
KERNWRIGHT_API std::string_view to_string(MissReason reason);

}  // namespace kernwright
