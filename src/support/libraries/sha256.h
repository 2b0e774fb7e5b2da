#pragma once

#include <string>
#include <string_view>

namespace kernwright {

/// Returns the SHA-256 of `bytes` in base64, as a Content-Security-Policy names a script. Uses
/// libsodium.
std::string sha256_base64(std::string_view bytes);

}  // namespace kernwright
