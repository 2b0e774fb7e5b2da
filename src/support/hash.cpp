#include "support/hash.h"

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/BLAKE3.h>

namespace kernwright {
namespace {

llvm::StringRef as_ref(std::string_view text) { return {text.data(), text.size()}; }

Digest finish_of(llvm::BLAKE3& state) {
  llvm::BLAKE3Result<32> result;
  state.final(result);
  Digest digest;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) digest.bytes[i] = result[i];
  return digest;
}

}  // namespace

struct Hasher::State {
  llvm::BLAKE3 blake3;

  void add_length(std::uint64_t length) {
    std::array<std::uint8_t, 8> little_endian{};
    for (std::size_t i = 0; i < 8; ++i) {
      little_endian[i] = static_cast<std::uint8_t>(length >> (8 * i));
    }
    blake3.update(little_endian);
  }
};

std::string Digest::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Hasher::Hasher() : state_(new State) {}
Hasher::~Hasher() { delete state_; }

Hasher& Hasher::add(std::string_view name, std::string_view value) {
  state_->add_length(name.size());
  state_->blake3.update(as_ref(name));
  state_->add_length(value.size());
  state_->blake3.update(as_ref(value));
  return *this;
}

Hasher& Hasher::add(std::string_view name, std::int64_t value) {
  return add(name, std::to_string(value));
}

Digest Hasher::finish() const { return finish_of(state_->blake3); }

Digest digest_of(std::string_view bytes) {
  llvm::BLAKE3 state;
  state.update(as_ref(bytes));
  return finish_of(state);
}

bool is_hex_digest(std::string_view text) {
  return text.size() == 2 * sizeof(Digest::bytes) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace kernwright
