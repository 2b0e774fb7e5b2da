#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace kernwright {

/// The places of a tensor's elements: rows of `row` elements side by side. Each level, the
/// outermost first, has entries that are `pitch` elements apart, `count` of them within an entry of
/// the level above. A contiguous tensor is one row.
struct Layout {
  struct Level {
    std::int64_t count = 1;
    std::int64_t pitch = 0;

    bool operator==(const Level&) const = default;
  };
  static constexpr std::size_t kMaxLevels = 3;

  std::int64_t elements = 0;
  std::int64_t columns = 0;  ///< the innermost extent
  std::int64_t row = 0;
  std::array<Level, kMaxLevels> levels;
  std::size_t level_count = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): so many elements.
  Layout(std::int64_t contiguous) : elements(contiguous), columns(contiguous), row(contiguous) {}

  /// Returns the layout of a tensor with `pitches` of all its dims but the last, or none. Levels
  /// without a gap between them are one. Returns nullopt if more levels than `kMaxLevels` stay.
  static std::optional<Layout> of(std::span<const std::int64_t> extent,
                                  std::span<const std::int64_t> pitches);

  bool contiguous() const { return level_count == 0; }
  /// Returns the elements from the first to the last, with the gaps between rows.
  std::int64_t span() const;
  /// Returns the place of element number `element`.
  std::int64_t place(std::int64_t element) const;
  /// Returns the number of the element at `place`; nullopt in a gap.
  std::optional<std::int64_t> element_at(std::int64_t place) const;

  bool operator==(const Layout&) const = default;
};

}  // namespace kernwright
