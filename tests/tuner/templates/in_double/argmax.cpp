#include <algorithm>
#include <cstddef>

#include "tests/tuner/templates/in_double/in_double.h"

namespace kernwright {
namespace {

Outputs argmax_in_double(const Arrays& in, const Dims& d, const Problem&) {
  Outputs out;
  const std::size_t columns = d.at("columns");
  for (std::size_t r = 0; r < d.at("rows"); ++r) {
    const double* const row = in.at("x").data() + r * columns;
    out["index"].add(static_cast<double>(std::max_element(row, row + columns) - row), 0);
  }
  return out;
}

const InDouble kArgmaxForm("argmax", argmax_in_double);

}  // namespace
}  // namespace kernwright
