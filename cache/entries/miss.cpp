#include "cache/entries/miss.h"

namespace kernwright {
namespace {

template <typename Enum>
std::optional<Enum> parse(std::string_view text, int count) {
  for (int i = 0; i < count; ++i) {
    if (to_string(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Match> parse_match(std::string_view text) { return parse<Match>(text, kMatches); }

std::optional<MissReason> parse_miss_reason(std::string_view text) {
  return parse<MissReason>(text, kMissReasons);
}

}  // namespace kernwright
