#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/records/record_head.h"
#include "model/candidate/choice.h"
#include "model/operation/bound_problem.h"

namespace kernwright {

/// Returns the distance of two problems of one operation: the L2 norm of the log2 ratios of their
/// dims, plus 1 per flag that differs. Returns nullopt if a dtype differs: such problems share no
/// kernels. `other` is normalised.
std::optional<double> neighbour_distance(const BoundProblem& problem, const Problem& other);

/// Returns choices that are worth trying first for `problem`, whose key is `key`, best first: the
/// winners of the nearest 5 neighbours and what tied with them, every neighbour's first before any
/// neighbour's second. Only the evidence of the chosen neighbours is read; if it cannot be, the
/// winner alone counts. Neighbours are measured records of the operation at another shape, flag or
/// policy; if one key has several, the first counts. At most 8 are from the key's own SKU, and
/// after them at most 4 from the nearest 5 records of other SKUs, the key's own problem among them.
/// Records of `key` itself hold its incumbent, which is not one of these.
std::vector<Choice> find_warm_starts(const BoundProblem& problem, const RecordKey& key,
                                     std::span<const RecordRun> records);

}  // namespace kernwright
