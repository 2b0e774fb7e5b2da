#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tuner/learning/random_draws.h"
#include "tuner/strategies/search_strategy.h"

namespace kernwright::detail {

/// The candidates of a space as points: which differ in one parameter. Only valid candidates exist,
/// so that neighbours are looked up among them; they never cross from one template to another.
class Neighbourhood {
 public:
  explicit Neighbourhood(const SearchSpace& space);

  /// Every candidate of the same template that differs in one parameter, in the order of the
  /// parameters.
  std::vector<std::size_t> of(std::size_t candidate) const;

  /// Returns a candidate of the same template that differs in at most `parameters` parameters,
  /// drawn at random; the candidate itself if none was found.
  std::size_t perturb(std::size_t candidate, int parameters, RandomDraws& draws) const;

  /// Values of a candidate as ordinals within its template's lists.
  const std::uint16_t* point(std::size_t candidate) const {
    return ordinals_.data() + offset_[candidate];
  }
  /// Returns the number of parameters of the candidate's template.
  std::size_t dimensions(std::size_t candidate) const {
    return templates_[template_[candidate]].values.size();
  }
  /// Returns the number of values that a parameter of the candidate's template takes.
  std::size_t values(std::size_t candidate, std::size_t parameter) const {
    return templates_[template_[candidate]].values[parameter];
  }
  std::size_t template_of(std::size_t candidate) const { return template_[candidate]; }
  std::size_t template_count() const { return templates_.size(); }

 private:
  struct Template {
    std::vector<std::size_t> values;  ///< per parameter
    std::unordered_map<std::uint64_t, std::size_t> index;
  };
  static std::uint64_t mix(std::size_t parameter, std::size_t ordinal);

  std::vector<Template> templates_;
  std::vector<std::size_t> template_;
  std::vector<std::size_t> offset_;  ///< per candidate, into ordinals_
  std::vector<std::uint16_t> ordinals_;
  std::vector<std::uint64_t> hash_;
};

}  // namespace kernwright::detail
