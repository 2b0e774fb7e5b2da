#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace kernwright {

/// The first of `items` with that `name`; null where there is none.
template <typename Named>
const Named* find_named(const std::vector<Named>& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, &Named::name);
  return found == items.end() ? nullptr : &*found;
}

}  // namespace kernwright
