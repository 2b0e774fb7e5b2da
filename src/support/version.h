#pragma once

#include <string_view>

namespace kernwright {

/// Returns the project's version, such as "0.1.0".
std::string_view kernwright_version();

/// Returns the commit it was built from, twelve hex digits, or "unknown" outside a git checkout.
std::string_view kernwright_commit();

}  // namespace kernwright
