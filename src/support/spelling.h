#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

/// With A to Z as a to z, whatever the locale is.
std::string lower_case(std::string_view text);

/// What of `known` was most likely meant by `given`, as a part of a message:
/// " (did you mean matmul?)", or of several that are equally near
/// " (did you mean a100_40 or a100_80?)". Empty where nothing is near: near are the same letters in
/// another case, a slip in about every third letter, and what begins with or holds all of `given`.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

/// The names of `items` for `did_you_mean`.
template <typename Items>
std::vector<std::string> names_in(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.emplace_back(item.name);
  return names;
}

}  // namespace kernwright
