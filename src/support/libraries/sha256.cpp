#include "support/libraries/sha256.h"

#include <array>
#include <sodium.h>

namespace kernwright {

namespace {

std::array<unsigned char, crypto_hash_sha256_BYTES> sha256(std::string_view bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  ::crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size());
  return digest;
}

}  // namespace

std::string sha256_base64(std::string_view bytes) {
  const auto digest = sha256(bytes);
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_ENCODED_LEN(digest.size(), kVariant), '\0');
  ::sodium_bin2base64(text.data(), text.size(), digest.data(), digest.size(), kVariant);
  text.pop_back();  // the zero behind it
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  const auto digest = sha256(bytes);
  std::string text(2 * digest.size() + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), digest.data(), digest.size());
  text.pop_back();  // the zero behind it
  return text;
}

}  // namespace kernwright
