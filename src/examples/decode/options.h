#pragma once
// The options of the command line.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "numbers.h"
#include <kernwright/result.h>

namespace decode {

namespace kw = kernwright;

struct Options {
  std::string config;
  std::vector<std::string> weights;  ///< files and folders; none: random ones
  Ints lengths;                      ///< tokens of each sequence before the first step
  Ints prompt;                       ///< of every sequence; none: a random first token
  int steps = 32;
  bool paged = false;
  double seconds = 0;  ///< of tuning for each problem; 0: predictions
  std::string path;    ///< how steps are launched; empty: the fastest way
  bool check = false;
  std::string json;
  std::uint64_t seed = 1;

  /// Returns the number of steps that read the prompt before its last token.
  int prompt_steps() const { return prompt.empty() ? 0 : static_cast<int>(prompt.size()) - 1; }
};

extern const char* const kUsage;

/// Parses the command line. Errors: `invalid_argument` for an option that is unknown, lacks its
/// value, has a wrong one, or does not go with another.
kw::Result<Options> parse_options(const std::vector<std::string>& words);

}  // namespace decode
