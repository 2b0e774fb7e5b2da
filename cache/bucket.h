#pragma once

#include <optional>
#include <string>

#include "model/operation.h"
#include <kernwright/problem.h>

namespace kernwright {

/// How far apart two normalised problems of `operation` are for one to be answered by the other:
/// the largest ratio of their sizes of a dim that is matched by bucket. Nothing where one may not
/// be: another family, beyond the dim's distance, or something else differs.
std::optional<double> bucket_distance(const Operation& operation, const Problem& a,
                                      const Problem& b);

/// The problem's canonical text with `?` for the dims that may differ; empty where none may.
std::string bucket_pattern(const Operation& operation, const Problem& normalized);

}  // namespace kernwright
