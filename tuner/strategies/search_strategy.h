#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/result/trial.h"
#include <kernwright/result.h>

namespace kernwright {

/// A strategy's view of the search: the valid candidates as indices into one list, with their
/// predictions. Index `default_index` is the baseline and always measured first by the session.
struct SearchSpace {
  std::vector<double> predicted_us;
  std::vector<const Configuration*> configurations;
  std::vector<int> template_of;  ///< an ordinal per template
  std::vector<int> group_of;  ///< an ordinal per shared compile: members differ at run time alone
  std::size_t default_index = 0;
  /// Candidates that won elsewhere (the incumbent, neighbouring problems, other SKUs), best first.
  std::vector<std::size_t> warm_starts;
};

/// Decides what to try next. `propose` and `report` are called by one thread. A candidate is
/// proposed at most once; an empty proposal ends the search.
class SearchStrategy {
 public:
  virtual ~SearchStrategy() = default;
  /// At most `n` indices, the most promising first.
  virtual std::vector<std::size_t> propose(std::size_t n) = 0;
  virtual void report(std::size_t candidate, const Trial& trial) = 0;

  /// One more candidate that shares its compile with one already reported, for when the device
  /// would otherwise wait for the compiler; counts as proposed. None by default.
  virtual std::optional<std::size_t> propose_compiled() { return std::nullopt; }

  /// Returns whether every candidate is wanted, however long none improves.
  virtual bool wants_all() const { return false; }
};

/// Names of the strategies there are: "exhaustive", "random", "ranked", "local_search",
/// "portfolio".
std::vector<std::string_view> strategy_names();

/// Errors: `invalid_argument` for a name that is none of them, which lists them.
Result<void> check_strategy(std::string_view name);

/// Errors: those of `check_strategy`.
Result<std::unique_ptr<SearchStrategy>> make_strategy(std::string_view name,
                                                      const SearchSpace& space, std::uint64_t seed);

}  // namespace kernwright
