#pragma once

#include <string>
#include <vector>

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// Makes the compile request of a candidate: the template's source, and what this reaches of the
/// generated configuration, the device headers, the files beside the source, and the problem's
/// function. Candidates that
/// differ only in run-time parameters have equal requests.
CompileRequest render(const Candidate& candidate, const Catalog& catalog, int sm_arch);

/// Makes the compile request of the reference kernel of a problem's operation.
CompileRequest render_reference(const BoundProblem& problem, const Catalog& catalog, int sm_arch);

/// Returns the digest of all text that a template's kernels and launches are made from, in hex: of
/// its manifests, but for their words, costs and habits, its source, and the device headers that
/// this reaches.
std::string template_digest(const KernelTemplate& kernel_template,
                            const std::vector<DeviceHeader>& device_headers);
inline std::string template_digest(const KernelTemplate& kernel_template, const Catalog& catalog) {
  return template_digest(kernel_template, catalog.headers());
}

/// Makes the compile request of the input kernels of a problem's operation, which must have some.
CompileRequest render_input_kernels(const BoundProblem& problem, const Catalog& catalog,
                                    int sm_arch);

}  // namespace kernwright
