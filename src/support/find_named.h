#pragma once

#include <algorithm>
#include <string_view>

namespace kernwright {

/// Returns the first of `items` whose `name` is the given one; null if there is none.
template <typename Items>
const typename Items::value_type* find_named(const Items& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, &Items::value_type::name);
  return found == items.end() ? nullptr : &*found;
}

}  // namespace kernwright
