#pragma once

#include <string>
#include <string_view>

namespace kernwright {

/// The SHA-256 of `bytes` in base64, as a Content-Security-Policy names a script. By libsodium.
std::string sha256_base64(std::string_view bytes);

}  // namespace kernwright
