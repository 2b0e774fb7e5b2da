#pragma once
// The results with which references are compared: on the host in double, by tensor name, with
// magnitudes.

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// Divides the elements of y, `size` neighbours of a row together, by scales of their own, which it
/// returns: the largest of them divided by `end`, but `least` at least.
Expected divide_by_own_scales(Expected& y, std::size_t rows, std::size_t size, double end,
                              double least);

/// Divides the results y by their scales, as the flag `quantize` says; does nothing without it.
/// `least` is the checked scale_least.
void quantize(const Arrays& in, const Dims& d, const Problem& problem, double least, Outputs& out);

/// Returns the value of a dim as the problem has it; 0 if it is left out.
std::int64_t dim(const Problem& problem, std::string_view name);

/// The double precision form of an operation. A file that defines one makes it known.
class InDouble {
 public:
  using Compute = std::function<Outputs(const Arrays&, const Dims&, const Problem&)>;
  using Takes = std::function<bool(const Problem&)>;

  /// `takes` says for which problems it is right, and its bounds hold; none: all.
  InDouble(std::string operation, Compute compute, Takes takes = {});

  /// Returns the form of an operation; null if it has none.
  static const InDouble* of(const std::string& operation);

  Outputs compute(const Arrays& in, const Dims& d, const Problem& problem) const {
    return compute_(in, d, problem);
  }
  bool takes(const Problem& problem) const { return !takes_ || takes_(problem); }

 private:
  static std::map<std::string, const InDouble*>& known();

  Compute compute_;
  Takes takes_;
};

}  // namespace kernwright
