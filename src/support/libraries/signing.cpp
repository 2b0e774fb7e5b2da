#include "support/libraries/signing.h"

#include <array>
#include <cstddef>
#include <optional>
#include <sodium.h>

#include "support/libraries/dynamic_library.h"
#include "support/text.h"

namespace kernwright {
namespace {

struct Sodium {
  decltype(&::sodium_init) init = nullptr;
  decltype(&::crypto_sign_keypair) keypair = nullptr;
  decltype(&::crypto_sign_detached) detached = nullptr;
  decltype(&::crypto_sign_verify_detached) verify = nullptr;
};

Result<Sodium> load() {
  const Result<DynamicLibrary> library =
      DynamicLibrary::open({"libsodium.so.26", "libsodium.so.23"});
  if (!library) return library.error();
  Sodium sodium;
  const auto resolve = [&library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library->symbol(name));
    return function != nullptr;
  };
  const bool found = resolve(sodium.init, "sodium_init") &&
                     resolve(sodium.keypair, "crypto_sign_keypair") &&
                     resolve(sodium.detached, "crypto_sign_detached") &&
                     resolve(sodium.verify, "crypto_sign_verify_detached");
  if (!found || sodium.init() < 0) {
    return Error{ErrorCode::unavailable, concat(library->name(), " cannot be used")};
  }
  return sodium;
}

const Result<Sodium>& sodium() {
  static const Result<Sodium> loaded = load();
  return loaded;
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
  const Result<Sodium>& library = sodium();
  if (!library) return library.error();
  std::array<unsigned char, crypto_sign_PUBLICKEYBYTES> shared{};
  std::array<unsigned char, crypto_sign_SECRETKEYBYTES> secret{};
  if (library->keypair(shared.data(), secret.data()) != 0) {
    return Error{ErrorCode::internal, "libsodium made no key pair"};
  }
  return KeyPair{hex_of(shared), hex_of(secret)};
}

Result<std::string> sign(std::string_view message, std::string_view secret_key) {
  const Result<Sodium>& library = sodium();
  if (!library) return library.error();
  const auto secret = bytes_of<crypto_sign_SECRETKEYBYTES>(secret_key);
  if (!secret) {
    return Error{ErrorCode::invalid_argument,
                 concat("no secret Ed25519 key of ", kSecretKeyDigits,
                        " hex digits: ", secret_key.size(), " characters")};
  }
  std::array<unsigned char, crypto_sign_BYTES> signature{};
  if (library->detached(signature.data(), nullptr, data_of(message), message.size(),
                        secret->data()) != 0) {
    return Error{ErrorCode::internal, "libsodium signed nothing"};
  }
  return hex_of(signature);
}

Result<bool> is_signed(std::string_view message, std::string_view signature,
                       std::string_view public_key) {
  const Result<Sodium>& library = sodium();
  if (!library) return library.error();
  const auto key = bytes_of<crypto_sign_PUBLICKEYBYTES>(public_key);
  if (!key) {
    return Error{ErrorCode::invalid_argument,
                 concat("no public Ed25519 key of ", kPublicKeyDigits,
                        " hex digits: ", public_key.size(), " characters")};
  }
  const auto given = bytes_of<crypto_sign_BYTES>(signature);
  if (!given) return false;
  return library->verify(given->data(), data_of(message), message.size(), key->data()) == 0;
}

}  // namespace kernwright
