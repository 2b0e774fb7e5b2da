#include "launch/device_values.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "support/text.h"

namespace kernwright {

Result<void> check_values(const TensorShape& tensor, std::span<const std::int64_t> values,
                          std::span<const std::int64_t> counts,
                          std::span<const std::int64_t> rows) {
  const ValueRange<std::int64_t>& range = *tensor.values;
  const auto columns = static_cast<std::size_t>(tensor.columns());
  if (!range.per && !counts.empty()) {
    const std::int64_t used = std::max<std::int64_t>(counts.back(), 0);
    values = values.first(std::min(values.size(), static_cast<std::size_t>(used)));
  }
  std::vector<std::int64_t> of_rows(counts.begin(), counts.end());
  if (range.per && !rows.empty()) {
    of_rows.assign(values.size() / columns, 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::int64_t& used = of_rows[static_cast<std::size_t>(rows[i])];
      used = std::max(used, i < counts.size() ? counts[i] : *range.per * tensor.columns());
    }
  }
  const auto wrong = [&](std::size_t at, const auto&... what) {
    const std::string place =
        tensor.extent.size() < 2 ? std::to_string(at) : concat(at / columns, ",", at % columns);
    return Error{ErrorCode::invalid_argument,
                 concat(tensor.name, "[", place, "] is ", values[at], what...)};
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (range.per && i / columns < of_rows.size()) {
      const std::int64_t used = std::max<std::int64_t>(of_rows[i / columns], 0);
      if (static_cast<std::int64_t>(i % columns) * *range.per >= used) continue;
    }
    if (values[i] < range.least || values[i] > range.most) {
      return wrong(i, ", and may be ", range.least, " to ", range.most);
    }
    if ((range.rise || !range.falls) && i > 0 && values[i] < values[i - 1]) {
      return wrong(i, " after ", values[i - 1]);
    }
    if (!range.rise) continue;
    if (i == 0 && values[i] != range.least) return wrong(i, ", and begins at ", range.least);
    if (i > 0 && values[i] - values[i - 1] > *range.rise) {
      return wrong(i, " after ", values[i - 1], ", more than ", *range.rise, " on");
    }
    if (i + 1 == values.size() && values[i] != range.most) {
      return wrong(i, ", and ends at ", range.most);
    }
  }
  return {};
}

}  // namespace kernwright
