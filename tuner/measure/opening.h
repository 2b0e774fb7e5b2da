#pragma once

#include <vector>

#include "compile/compile_request.h"
#include "model/catalog/catalog.h"

namespace kernwright {

/// What a runner of the problem compiles one after the other while it opens. Submitted beforehand,
/// all of it takes as long as the longest.
std::vector<CompileRequest> opening_requests(const Operation& operation, const Problem& normalized,
                                             const Catalog& catalog, int sm_arch);

}  // namespace kernwright
