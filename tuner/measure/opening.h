#pragma once

#include <vector>

#include "compile/compile_request.h"
#include "model/catalog/catalog.h"

namespace kernwright {

/// The requests that a runner of the problem compiles one after the other while it opens. If they
/// are submitted before, opening takes as long as the longest of them.
std::vector<CompileRequest> opening_requests(const BoundProblem& problem, const Catalog& catalog,
                                             int sm_arch);

}  // namespace kernwright
