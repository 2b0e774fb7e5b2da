#pragma once

#include <exception>

#include "support/text.h"
#include <kernwright/result.h>

namespace kernwright {

/// Runs `function`, which returns a Result. Turns what it throws (bad_alloc, TBB, JSON) into an
/// error.
template <typename Function>
auto guarded(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& e) {
    return Error{ErrorCode::internal, concat("unexpected exception: ", e.what())};
  }
}

}  // namespace kernwright
