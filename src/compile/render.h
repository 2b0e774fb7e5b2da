#pragma once

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// The compile request of a candidate: the template's source, the generated configuration, device
/// headers, files beside the source, the problem's function. Candidates that differ in run-time
/// parameters alone give one.
CompileRequest render(const Candidate& candidate, const Catalog& catalog, int sm_arch);

/// The compile request of an operation's reference kernel.
CompileRequest render_reference(const Operation& operation, const Problem& normalized,
                                const Catalog& catalog, int sm_arch);

}  // namespace kernwright
