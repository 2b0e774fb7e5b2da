#include "support/spelling.h"

#include <algorithm>
#include <cstddef>

#include "support/text.h"

namespace kernwright {
namespace {

/// More names than these would not be a hint.
constexpr std::size_t kMostNamed = 3;

/// Returns the edit distance: letters that are changed, inserted, removed or swapped with the next
/// one.
std::size_t slips(std::string_view from, std::string_view to) {
  // rows[i][j] is the distance between the first i letters of `from` and the first j of `to`.
  std::vector<std::vector<std::size_t>> rows(from.size() + 1,
                                             std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const bool same = from[i - 1] == to[j - 1];
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + !same});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows.back().back();
}

/// Returns how far `given` is from `name`, both in lower case. A part of a name is nearer than a
/// misspelt one. Returns a large number if it is not near.
std::size_t distance(std::string_view given, std::string_view name) {
  constexpr std::size_t kFar = ~std::size_t{0};
  if (given == name) return 0;
  if (given.size() >= 2 && name.starts_with(given)) return 1;
  if (given.size() >= 3 && name.find(given) != std::string_view::npos) return 1;
  const auto [shorter, longer] = std::minmax({given.size(), name.size()});
  const std::size_t most = std::max<std::size_t>(1, longer / 3);
  if (longer - shorter > most) return kFar;  // the given text may have megabytes
  const std::size_t found = slips(given, name);
  return found <= most && found < shorter ? 2 * found : kFar;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  const std::string lower = lower_case(given);
  std::size_t best = ~std::size_t{0};
  std::vector<std::string> nearest;
  for (const std::string& name : known) {
    const std::size_t far = distance(lower, lower_case(name));
    if (far < best) nearest.clear();
    if (far <= best && far != ~std::size_t{0}) {
      best = far;
      nearest.push_back(name);
    }
  }
  if (nearest.empty() || nearest.size() > kMostNamed) return {};
  std::string names = nearest.front();
  for (std::size_t i = 1; i < nearest.size(); ++i) {
    names += concat(i + 1 < nearest.size() ? ", " : " or ", nearest[i]);
  }
  return concat(" (did you mean ", names, "?)");
}

}  // namespace kernwright
