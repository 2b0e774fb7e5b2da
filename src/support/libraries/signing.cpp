#include "support/libraries/signing.h"

#include <array>
#include <cstddef>
#include <optional>
#include <sodium.h>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Initialises libsodium; to be called before its use.
Result<void> initialise() {
  if (::sodium_init() < 0) return Error{ErrorCode::internal, "libsodium cannot be used"};
  return {};
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <std::size_t Count>
std::optional<std::array<unsigned char, Count>> bytes_of(std::string_view hex) {
  if (hex.size() != 2 * Count) return std::nullopt;
  std::array<unsigned char, Count> bytes{};
  for (std::size_t i = 0; i < Count; ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<unsigned char>(16 * high + low);
  }
  return bytes;
}

template <std::size_t Count>
std::string hex_of(const std::array<unsigned char, Count>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

const unsigned char* data_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Result<KeyPair> make_key_pair() {
  KW_TRY(initialise());
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> shared{};
  std::array<unsigned char, crypto_sign_SECRETKEYBYTES> secret{};
  if (::crypto_sign_keypair(shared.data(), secret.data()) != 0) {
    return Error{ErrorCode::internal, "libsodium made no key pair"};
  }
  return KeyPair{hex_of(shared), hex_of(secret)};
}

Result<std::string> sign(std::string_view message, std::string_view secret_key) {
  KW_TRY(initialise());
  const auto secret = bytes_of<crypto_sign_SECRETKEYBYTES>(secret_key);
  if (!secret) {
    return Error{ErrorCode::invalid_argument,
                 concat("no secret Ed25519 key of ", kSecretKeyDigits,
                        " hex digits: ", secret_key.size(), " characters")};
  }
  std::array<unsigned char, crypto_sign_BYTES> signature{};
  if (::crypto_sign_detached(signature.data(), nullptr, data_of(message), message.size(),
                             secret->data()) != 0) {
    return Error{ErrorCode::internal, "libsodium signed nothing"};
  }
  return hex_of(signature);
}

Result<bool> is_signed(std::string_view message, std::string_view signature,
                       std::string_view public_key) {
  KW_TRY(initialise());
  const auto key = bytes_of<crypto_sign_PUBLICKEYBYTES>(public_key);
  if (!key) {
    return Error{ErrorCode::invalid_argument,
                 concat("no public Ed25519 key of ", kPublicKeyDigits,
                        " hex digits: ", public_key.size(), " characters")};
  }
  const auto given = bytes_of<crypto_sign_BYTES>(signature);
  if (!given) return false;
  return ::crypto_sign_verify_detached(given->data(), data_of(message), message.size(),
                                       key->data()) == 0;
}

}  // namespace kernwright
