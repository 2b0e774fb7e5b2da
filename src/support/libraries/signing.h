#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <kernwright/result.h>

namespace kernwright {

/// An Ed25519 key pair, both in lower-case hex: 64 digits of the public key, 128 of the secret one.
inline constexpr std::size_t kPublicKeyDigits = 64;
inline constexpr std::size_t kSecretKeyDigits = 128;
struct KeyPair {
  std::string public_key;
  std::string secret_key;
};

// All use libsodium. Errors: `invalid_argument` for text that is not a key. Messages never show
// that text, because it may be a secret.

Result<KeyPair> make_key_pair();

/// Returns the signature of `message` in hex, 128 digits.
Result<std::string> sign(std::string_view message, std::string_view secret_key);

/// Returns whether `signature` is a signature of `message` by the owner of `public_key`. Returns
/// false for text that is not a signature.
Result<bool> is_signed(std::string_view message, std::string_view signature,
                       std::string_view public_key);

}  // namespace kernwright
