#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/candidate/choice.h"
#include "model/candidate/dispatch_table.h"
#include "model/catalog/catalog.h"
#include "model/operation/ranged_problem.h"
#include <kernwright/result.h>

namespace kernwright {

/// Returns the text that a problem shares with all problems of its family: those that differ in
/// ranged dims alone, and have each size in the same interval. A ranged dim is one that the
/// operation binds by bucket, and that the normalised problem names.
std::string family_of(const BoundProblem& problem);

/// Returns the ranged dims of the problem's family, with the intervals of their sizes, in the
/// problem's order.
std::vector<FreeDim> free_dims(const BoundProblem& problem);

/// A choice that names what is compiled in for its sizes (see `choice_of_bits`), and a problem of
/// the family that it is valid for.
struct ListedChoice {
  Choice choice;
  BoundProblem example;
};
/// A few choices that are together near the best prediction at every size of a family, so that a
/// further size needs no ranking of all candidates.
struct Shortlist {
  std::vector<ListedChoice> choices;   ///< at most 8
  std::optional<DispatchTable> table;  ///< over the sizes of `free_dims`, if there are some
};

/// Choices that may come on a shortlist, and how long they take at sizes of its family.
struct RankedChoices {
  std::vector<ListedChoice> choices;
  std::vector<std::vector<double>> losses;  ///< of each choice: its times over the best, by size
};
/// Ranks the candidates at sizes that are spread over the problem's family, its own among them.
/// Takes tens of milliseconds a size. Errors: from `enumerate_candidates` for the problem's own
/// size; `unavailable` soon after `stopped` returns true.
Result<RankedChoices> rank_family(const Catalog& catalog, const BoundProblem& problem,
                                  const DeviceProfile& profile,
                                  const std::function<bool()>& stopped);

/// Returns those of the problem's ranked choices that `may` be listed whose best is nearest to the
/// best of all, with a table of their predictions. Takes tenths of a second. Errors: `unavailable`
/// soon after `stopped` returns true.
Result<Shortlist> make_shortlist(const RankedChoices& ranked, const Catalog& catalog,
                                 const BoundProblem& problem, const DeviceProfile& profile,
                                 const std::function<bool()>& stopped,
                                 const std::function<bool(const ListedChoice&)>& may);

/// A choice of a shortlist at one size.
struct Shortlisted {
  std::size_t number = 0;  ///< of the choice
  Candidate candidate;
  double predicted_us = 0;
};
/// Returns those of the choices that are valid for a problem of their family, in the order in which
/// they are taken if nothing was measured (see `predicted_choice`).
std::vector<Shortlisted> rank_shortlist(const std::vector<ListedChoice>& choices,
                                        const Catalog& catalog, const BoundProblem& problem,
                                        const DeviceProfile& profile);

}  // namespace kernwright
