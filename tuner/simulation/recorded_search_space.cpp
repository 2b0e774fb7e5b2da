#include "tuner/feature_columns.h"
#include "tuner/simulation/recorded_space.h"

namespace kernwright {

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
    for (const auto& [name, value] : one.configuration.values()) {
      columns.set(name, static_cast<double>(value));
    }
  }
  space.features = columns.take();
  return space;
}

}  // namespace kernwright
