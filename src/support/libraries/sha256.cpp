#include "support/libraries/sha256.h"

#include <array>
#include <sodium.h>

namespace kernwright {

std::string sha256_base64(std::string_view bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  ::crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                       bytes.size());
  constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_ENCODED_LEN(digest.size(), kVariant), '\0');
  ::sodium_bin2base64(text.data(), text.size(), digest.data(), digest.size(), kVariant);
  text.pop_back();  // the zero behind it
  return text;
}

}  // namespace kernwright
