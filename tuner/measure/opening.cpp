#include "tuner/measure/opening.h"

#include <set>
#include <utility>

#include "compile/render.h"
#include "tuner/audit/launch_probe.h"
#include "tuner/data/data_ops.h"
#include "tuner/data/probe_kernels.h"

namespace kernwright {

std::vector<CompileRequest> opening_requests(const BoundProblem& problem, const Catalog& catalog,
                                             int sm_arch) {
  std::vector<CompileRequest> requests;
  std::set<DType> dtypes;
  for (const TensorShape& shape : problem.shapes()) dtypes.insert(shape.dtype);
  for (const DType dtype : dtypes) {
    if (auto request = data_ops_request(dtype, sm_arch)) requests.push_back(*std::move(request));
  }
  requests.push_back(render_reference(problem, catalog, sm_arch));
  if (problem.operation().input_kernels) {
    requests.push_back(render_input_kernels(problem, catalog, sm_arch));
  }
  requests.push_back(ProbeKernels::request(sm_arch));
  requests.push_back(launch_probe_request(sm_arch));
  return requests;
}

}  // namespace kernwright
