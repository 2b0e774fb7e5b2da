#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

/// Returns the text with A to Z replaced by a to z, whatever the locale is.
std::string lower_case(std::string_view text);

/// Returns the names in `known` that `given` most likely meant, as a part of a message: " (did you
/// mean matmul?)", or for several that are equally near " (did you mean a100_40 or a100_80?)". A
/// name is near if it has the same letters in another case, differs in at most about every third
/// letter, or contains `given`. Empty if none is near.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

/// Returns the names of `items` for `did_you_mean`.
template <typename Items>
std::vector<std::string> names_in(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.emplace_back(item.name);
  return names;
}

}  // namespace kernwright
