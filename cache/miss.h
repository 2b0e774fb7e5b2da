#pragma once

#include <optional>
#include <string>
#include <utility>

#include <kernwright/match.h>

namespace kernwright {

/// A value, or why there is none. A defect of the cache is a miss, never an error.
template <typename T>
struct Lookup {
  std::optional<T> value;
  MissReason reason = MissReason::absent;
  std::string detail;

  explicit operator bool() const { return value.has_value(); }
};

}  // namespace kernwright
