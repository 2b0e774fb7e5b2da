#pragma once
// The results with which references are compared: on the host in double, by tensor name, with
// magnitudes.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/problem.h>

namespace kernwright {

/// Inputs of one problem, by tensor name.
using Arrays = std::map<std::string, std::vector<double>>;
struct Expected {
  std::vector<double> value;
  std::vector<double> magnitude;

  void add(double one, double terms) {
    value.push_back(one);
    magnitude.push_back(terms);
  }
};
/// By output.
using Outputs = std::map<std::string, Expected>;
using Dims = std::map<std::string, std::size_t>;

/// Returns the value of a flag or dtype as the problem has it; empty if it is left out.
std::string flag(const Problem& problem, std::string_view name);

Outputs gated_activation_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs bias_activation_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs rope_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs attention_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs attention_merge_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs kv_append_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs attention_schedule_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs argmax_in_double(const Arrays& in, const Dims& d, const Problem& problem);
Outputs embedding_in_double(const Arrays& in, const Dims& d, const Problem& problem);

/// Computes the formulas a*x+y, silu(x)*y and max(x,y)/(1+exp(-z)).
Outputs elementwise_in_double(const Arrays& in, const Dims& d, const Problem& problem);

}  // namespace kernwright
