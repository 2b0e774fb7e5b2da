#include "model/candidate/choice.h"

namespace kernwright {

std::string Choice::id() const {
  const std::string values = configuration.text();
  return kernel_template + (values.empty() ? "" : " ") + values;
}

}  // namespace kernwright
