#include "bench/simulation/recorded_space.h"

namespace kernwright {

SearchSpace make_search_space(const RecordedSpace& recorded) {
  SearchSpace space;
  space.default_index = recorded.default_index;
  int group = 0;
  for (const RecordedConfiguration& one : recorded.configurations) {
    space.predicted_us.push_back(one.predicted_us);
    space.configurations.push_back(&one.configuration);
    space.template_of.push_back(one.kernel_template);
    space.group_of.push_back(group++);
  }
  return space;
}

}  // namespace kernwright
