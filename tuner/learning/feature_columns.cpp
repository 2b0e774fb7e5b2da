#include "tuner/learning/feature_columns.h"

#include <limits>
#include <utility>

namespace kernwright {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void FeatureColumns::begin_row() { rows_.emplace_back(columns_.size(), kMissing); }

void FeatureColumns::set(std::string_view name, double value) {
  auto column = columns_.find(name);
  if (column == columns_.end()) column = columns_.emplace(name, columns_.size()).first;
  std::vector<double>& row = rows_.back();
  if (row.size() <= column->second) row.resize(column->second + 1, kMissing);
  row[column->second] = value;
}

std::vector<std::vector<double>> FeatureColumns::take() {
  for (std::vector<double>& row : rows_) row.resize(columns_.size(), kMissing);
  return std::move(rows_);
}

}  // namespace kernwright
