#pragma once

#include <optional>
#include <string>
#include <utility>

#include <kernwright/match.h>

namespace kernwright {

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
