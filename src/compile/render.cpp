#include "compile/render.h"

#include "model/config_header.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// All device headers are offered: which ones a source includes is for the compiler to find.
CompileRequest make_request(std::string name, std::string source, std::string config,
                            const Catalog& catalog, std::string target) {
  CompileRequest request;
  request.name = std::move(name);
  request.source = std::move(source);
  request.target = std::move(target);
  request.headers.emplace_back("kernwright/config.cuh", std::move(config));
  for (const DeviceHeader& header : catalog.headers()) {
    request.headers.emplace_back(header.name, header.text);
  }
  return request;
}

}  // namespace

CompileRequest render(const Candidate& candidate, const Catalog& catalog, int sm_arch) {
  const KernelTemplate& kernel_template = *candidate.kernel_template;
  return make_request(concat(kernel_template.name, "/", kernel_template.source_file),
                      kernel_template.source, config_header(candidate), catalog,
                      kernel_template.target(sm_arch));
}

CompileRequest render_reference(const Operation& operation, const Problem& normalized,
                                const Catalog& catalog, int sm_arch) {
  return make_request(operation.name + "/reference.cu", operation.reference_source,
                      reference_config_header(operation, normalized), catalog,
                      concat("sm_", sm_arch));
}

}  // namespace kernwright
