#pragma once

#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// How well a served answer fits, best first.
enum class Match {
  exact,      ///< measured for this problem, SKU, policy and environment
  recheck,    ///< as exact, but another driver or version of kernwright measured it
  seed,       ///< as exact, but the template's text or the compiler has changed since
  bucket,     ///< measured for another shape of the same family
  predicted,  ///< ranked by the cost model
  none
};

/// Why a lookup gave nothing, or less than `Match::exact`.
enum class MissReason {
  none,              ///< it did not miss
  absent,            ///< no entry
  unreadable,        ///< the file system refused
  corrupt,           ///< magic, length, digest or format
  other_version,     ///< another format version
  key_mismatch,      ///< the embedded key is not the one asked for
  other_compiler,    ///< seed: another NVRTC
  other_driver,      ///< recheck: another driver
  other_kernwright,  ///< recheck: another version of kernwright
  template_changed,  ///< seed: the template's text is another
  template_missing,  ///< the winner's template does not exist here
  rule_violated,     ///< the winner's configuration is no candidate here
  artifact_missing,  ///< the record is there, its bits are not
  other_shape,       ///< bucket: measured for another shape of the same family
  banned,            ///< the winner is banned; what is served, if anything, was behind it
  pinned             ///< seed: pinned by a person, and in no record
};

KERNWRIGHT_API std::string_view to_string(Match match);
KERNWRIGHT_API std::string_view to_string(MissReason reason);

}  // namespace kernwright
