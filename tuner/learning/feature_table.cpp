#include "tuner/learning/feature_table.h"

#include <algorithm>
#include <cmath>

namespace kernwright::detail {
namespace {

constexpr std::size_t kMaxLevels = 255;

}  // namespace

FeatureTable::FeatureTable(const std::vector<std::vector<double>>& rows) : rows_(rows.size()) {
  const std::size_t columns = rows.empty() ? 0 : rows.front().size();
  std::vector<double> values;
  for (std::size_t c = 0; c < columns; ++c) {
    values.clear();
    bool missing = false;
    for (const auto& row : rows) {
      if (std::isnan(row[c])) {
        missing = true;
      } else {
        values.push_back(row[c]);
      }
    }
    std::sort(values.begin(), values.end());
    std::vector<double> distinct = values;
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    if (distinct.size() + (missing ? 1 : 0) < 2) continue;
    if (distinct.size() > kMaxLevels - 1) {
      distinct.clear();
      for (std::size_t q = 1; q < kMaxLevels; ++q) {
        distinct.push_back(values[q * (values.size() - 1) / (kMaxLevels - 1)]);
      }
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    }
    for (const auto& row : rows) {
      std::size_t ordinal = 0;
      if (!std::isnan(row[c])) {
        const auto place = std::lower_bound(distinct.begin(), distinct.end(), row[c]);
        ordinal = static_cast<std::size_t>(place - distinct.begin()) + (missing ? 1 : 0);
      }
      ordinals_.push_back(static_cast<std::uint8_t>(ordinal));
    }
    levels_.push_back(distinct.size() + (missing ? 1 : 0));
  }
}

}  // namespace kernwright::detail
