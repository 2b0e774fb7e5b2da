#include "model/operation/layout.h"

#include <algorithm>
#include <vector>

namespace kernwright {

std::optional<Layout> Layout::of(std::span<const std::int64_t> extent,
                                 std::span<const std::int64_t> pitches) {
  Layout layout(1);
  for (const std::int64_t size : extent) layout.elements *= size;
  layout.columns = extent.back();
  layout.row = pitches.empty() ? layout.elements : extent.back();
  std::vector<Level> found;  // the innermost first
  std::int64_t inner = layout.row;
  for (std::size_t i = pitches.size(); i-- > 0;) {
    const std::int64_t outer = pitches[i] * extent[i];
    if (extent[i] == 1) {
      // A single entry has no pitch.
    } else if (pitches[i] == inner) {
      (found.empty() ? layout.row : found.back().count) *= extent[i];
      inner = outer;
    } else {
      found.push_back({extent[i], pitches[i]});
      inner = outer;
    }
  }
  if (found.size() > kMaxLevels) return std::nullopt;
  std::copy(found.rbegin(), found.rend(), layout.levels.begin());
  layout.level_count = found.size();
  return layout;
}

std::int64_t Layout::span() const {
  std::int64_t last = row;
  for (std::size_t i = 0; i < level_count; ++i) last += (levels[i].count - 1) * levels[i].pitch;
  return last;
}

std::int64_t Layout::place(std::int64_t element) const {
  std::int64_t place = element % row;
  std::int64_t rest = element / row;
  for (std::size_t i = level_count; i-- > 0;) {
    place += rest % levels[i].count * levels[i].pitch;
    rest /= levels[i].count;
  }
  return place;
}

std::optional<std::int64_t> Layout::element_at(std::int64_t place) const {
  std::int64_t element = 0;
  for (std::size_t i = 0; i < level_count; ++i) {
    const std::int64_t entry = place / levels[i].pitch;
    if (entry >= levels[i].count) return std::nullopt;
    element = element * levels[i].count + entry;
    place %= levels[i].pitch;
  }
  if (place >= row) return std::nullopt;
  return element * row + place;
}

}  // namespace kernwright
