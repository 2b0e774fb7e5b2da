#include <kernwright/match.h>

namespace kernwright {

std::string_view to_string(Match match) {
  switch (match) {
    case Match::exact:
      return "exact";
    case Match::recheck:
      return "recheck";
    case Match::stale_code:
      return "seed";
    case Match::bucket:
      return "bucket";
    case Match::predicted:
      return "predicted";
    case Match::none:
      return "none";
  }
  return "none";
}

std::string_view to_string(MissReason reason) {
  switch (reason) {
    case MissReason::none:
      return "none";
    case MissReason::absent:
      return "absent";
    case MissReason::unreadable:
      return "unreadable";
    case MissReason::corrupt:
      return "corrupt";
    case MissReason::other_version:
      return "other_version";
    case MissReason::key_mismatch:
      return "key_mismatch";
    case MissReason::other_compiler:
      return "other_compiler";
    case MissReason::other_driver:
      return "other_driver";
    case MissReason::other_kernwright:
      return "other_kernwright";
    case MissReason::template_changed:
      return "template_changed";
    case MissReason::template_missing:
      return "template_missing";
    case MissReason::rule_violated:
      return "rule_violated";
    case MissReason::artifact_missing:
      return "artifact_missing";
    case MissReason::other_shape:
      return "other_shape";
    case MissReason::banned:
      return "banned";
    case MissReason::pinned:
      return "pinned";
  }
  return "none";
}

}  // namespace kernwright
