#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace kernwright {

/// One of `T`, const or not. A function beside such a value, `describe(visitor, value)`, calls the
/// visitor with the name and the place of each field. A visitor that reads fills the fields, and
/// one that writes takes a const value.
template <typename Value, typename... T>
concept MaybeConst = (std::same_as<std::remove_const_t<Value>, T> || ...);

/// A value with a `describe` for such visitors.
template <typename T, typename Visitor>
concept DescribedTo = requires(Visitor& visitor, T& value) { describe(visitor, value); };

/// An enumeration whose `names_of` lists the spellings of its values in their order, as
/// `std::to_array<std::string_view>`. The spelling is the same on disk and on the command line. The
/// concept does not ask for `names_of`: of a public enumeration that is declared apart, and the
/// first answer would hold for the whole translation unit.
template <typename Enum>
concept NamedEnum = std::is_enum_v<Enum>;

template <NamedEnum Enum>
constexpr std::string_view to_string(Enum value) {
  return names_of(value).at(static_cast<std::size_t>(value));
}

/// Returns the value that is spelled `text`.
template <NamedEnum Enum>
constexpr std::optional<Enum> parse_as(std::string_view text) {
  const auto names = names_of(Enum{});
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

/// Returns the first of `items` whose `name` is the given one; null if there is none.
template <typename Items>
const typename Items::value_type* find_named(const Items& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, &Items::value_type::name);
  return found == items.end() ? nullptr : &*found;
}

}  // namespace kernwright
