#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <kernwright/match.h>

namespace kernwright {

/// Returns the enumerator spelled `text`.
std::optional<Match> parse_match(std::string_view text);
std::optional<MissReason> parse_miss_reason(std::string_view text);

inline constexpr int kMatches = static_cast<int>(Match::none) + 1;
inline constexpr int kMissReasons = static_cast<int>(MissReason::pinned) + 1;

/// A value, or the reason why there is none. A defect of the cache is a miss, never an error.
template <typename T>
struct Lookup {
  std::optional<T> value;
  MissReason reason = MissReason::absent;
  std::string detail;

  explicit operator bool() const { return value.has_value(); }

  static Lookup hit(T value) { return {std::move(value), MissReason::none, {}}; }
  static Lookup miss(MissReason reason, std::string detail) {
    return {std::nullopt, reason, std::move(detail)};
  }
};

}  // namespace kernwright
