#include "bench/simulation/recorded_space.h"
#include "support/text.h"
#include "tuner/learning/feature_columns.h"

namespace kernwright {
namespace {

/// Raw values, and the product and ratio of each two: no manifest says which of them make up a tile
/// or a block.
void add_features(const Configuration& configuration, FeatureColumns& columns) {
  const auto& values = configuration.values();
  for (std::size_t a = 0; a < values.size(); ++a) {
    const auto& [name, value] = values[a];
    columns.set(name, static_cast<double>(value));
    for (std::size_t b = a + 1; b < values.size(); ++b) {
      const auto& [other_name, other] = values[b];
      const double product = static_cast<double>(value) * static_cast<double>(other);
      columns.set(concat(name, "*", other_name), product);
      if (other == 0) continue;
      const double ratio = static_cast<double>(value) / static_cast<double>(other);
      columns.set(concat(name, "/", other_name), ratio);
    }
  }
}

}  // namespace

SearchSpace make_search_space(const RecordedSpace& recorded) {
  SearchSpace space;
  space.default_index = recorded.default_index;
  FeatureColumns columns;
  int group = 0;
  for (const RecordedConfiguration& one : recorded.configurations) {
    space.predicted_us.push_back(one.predicted_us);
    space.configurations.push_back(&one.configuration);
    space.template_of.push_back(one.kernel_template);
    space.group_of.push_back(group++);
    columns.begin_row();
    columns.set("template", one.kernel_template);
    columns.set("predicted", one.predicted_us);
    add_features(one.configuration, columns);
  }
  space.features = columns.take();
  return space;
}

}  // namespace kernwright
