#pragma once

#include <optional>
#include <string_view>

#include <kernwright/export.h>

namespace kernwright {

/// What a kernel finds in the L2 when it is timed. Part of a record's key: kernels of one state are
/// not served for another. The spelling of an enumerator is its spelling on disk and in the CLI.
enum class L2State {
  cold,  ///< nothing of its tensors
  warm,  ///< its tensors, as far as they fit
  mixed  ///< the inputs that operation.json marks as warm, and nothing else
};

KERNWRIGHT_API std::string_view to_string(L2State state);

/// The state spelled `name`, if there is one.
KERNWRIGHT_API std::optional<L2State> parse_l2_state(std::string_view name);

}  // namespace kernwright
