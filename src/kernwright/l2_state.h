#pragma once

#include <optional>
#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// The contents of the L2 when a kernel is timed. It is part of a record's key: a kernel that was
/// tuned for one state is not served for another. An enumerator is spelled on disk and in the CLI
/// as it is here.
enum class L2State {
  cold,  ///< no part of its tensors
  warm,  ///< its tensors, as far as they fit
  mixed  ///< the inputs that operation.json marks as warm, and nothing else
};

KERNWRIGHT_API std::string_view to_string(L2State state);

/// Returns the state spelled `name`, if there is one.
KERNWRIGHT_API std::optional<L2State> parse_l2_state(std::string_view name);

}  // namespace kernwright
