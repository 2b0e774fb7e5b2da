#include <cmath>
#include <cstddef>

#include "tests/tuner/templates/in_double/in_double.h"

namespace kernwright {
namespace {

Outputs embedding_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  Outputs out;
  for (std::size_t t = 0; t < d.at("tokens"); ++t) {
    const auto row = static_cast<std::size_t>(in.at("tokens")[t]);
    for (std::size_t c = 0; c < d.at("hidden"); ++c) {
      const double x = in.at("table")[row * d.at("hidden") + c];
      out["x"].add(x, std::fabs(x));
    }
    if (flag(problem, "lengths") == "advance") {
      out["lengths_out"].add(in.at("lengths")[t] + 1, 0);
    }
  }
  return out;
}

const InDouble kEmbeddingForm("embedding", embedding_in_double);

}  // namespace
}  // namespace kernwright
