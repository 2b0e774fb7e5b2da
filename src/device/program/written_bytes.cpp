#include "device/program/written_bytes.h"

#include <algorithm>

namespace kernwright {

void WrittenBytes::add(DevicePointer first, std::int64_t bytes) {
  if (bytes == 0) return;
  Range range{first, first + static_cast<DevicePointer>(bytes)};
  // The ranges from `from` to `to` touch the new one.
  const auto from = std::ranges::lower_bound(ranges_, range.first, {}, &Range::end);
  const auto to = std::ranges::upper_bound(from, ranges_.end(), range.end, {}, &Range::first);
  if (from == to) {
    ranges_.insert(from, range);
    return;
  }
  range = {std::min(range.first, from->first), std::max(range.end, std::prev(to)->end)};
  *from = range;
  ranges_.erase(std::next(from), to);
}

bool WrittenBytes::overlap(DevicePointer first, std::int64_t bytes) const {
  const auto end = first + static_cast<DevicePointer>(bytes);
  const auto found = std::ranges::upper_bound(ranges_, first, {}, &Range::end);
  return bytes > 0 && found != ranges_.end() && found->first < end;
}

}  // namespace kernwright
