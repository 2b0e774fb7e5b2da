#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kernwright {

/// How well a served answer fits, best first.
enum class Match { exact, recheck, seed, bucket, predicted, none };

/// Why a lookup gave nothing, or less than `exact`.
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
  artifact_missing   ///< the record is there, its bits are not
};

std::string_view to_string(Match match);
std::string_view to_string(MissReason reason);

/// A value, or why there is none. A defect of the cache is a miss, never an error.
template <typename T>
struct Lookup {
  std::optional<T> value;
  MissReason reason = MissReason::absent;
  std::string detail;

  explicit operator bool() const { return value.has_value(); }
};

}  // namespace kernwright
