#include "compile/render.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "compile/includes.h"
#include "model/candidate/config_header.h"
#include "support/hash.h"
#include "support/json.h"
#include "support/text.h"

namespace kernwright {
namespace {

/// Adds the functions that a problem brings along: source as the header that `config_header`
/// includes, LTO-IR as an input to be linked.
void add_functions(CompileRequest& request, const BoundProblem& problem) {
  for (const Flag& flag : problem.operation().flags) {
    const UserFunction* const given = problem.function(flag);
    if (given && given->is_lto_ir) {
      request.linked.push_back(
          {concat(flag.name, ", which has to define ", flag.declaration), given->bytes});
    } else if (given) {
      request.headers.emplace_back(flag.header(), given->bytes);
      request.user_files.emplace_back(flag.header(), given->file);
    }
  }
}

/// Returns all that a source may include.
std::vector<HeaderText> offered_headers(const std::vector<DeviceHeader>& device_headers,
                                        const std::vector<DeviceHeader>& beside) {
  std::vector<HeaderText> offered;
  for (const auto* headers : {&device_headers, &beside}) {
    for (const DeviceHeader& header : *headers) offered.emplace_back(header.name, header.text);
  }
  return offered;
}

/// Makes a request with what is of the candidate or the problem alone, and the device headers that
/// the source reaches: others may change.
CompileRequest make_request(std::string name, std::string source,
                            const std::vector<DeviceHeader>& beside, std::string config,
                            const Catalog& catalog, std::string target,
                            const BoundProblem& problem) {
  CompileRequest request;
  request.name = std::move(name);
  request.source = std::move(source);
  request.target = std::move(target);
  request.headers.emplace_back("kernwright/config.cuh", std::move(config));
  add_functions(request, problem);
  std::vector<HeaderText> offered(request.headers.begin(), request.headers.end());
  for (const HeaderText& header : offered_headers(catalog.headers(), beside)) {
    offered.push_back(header);
  }
  std::vector<std::pair<std::string, std::string>> reached;
  for (const auto& [header, text] : reached_headers(request.source, offered)) {
    const bool is_own =
        std::ranges::any_of(request.headers, [&](const auto& own) { return own.first == header; });
    if (!is_own) reached.emplace_back(header, text);
  }
  std::ranges::move(reached, std::back_inserter(request.headers));
  return request;
}

/// Returns a manifest without what changes no kernel and no launch: its words, the costs that times
/// are predicted from, and the habits of the search.
std::string binding_text(const JsonFile& manifest) {
  nlohmann::ordered_json json = parse_value(manifest.text);
  for (const char* name : {"description", "cost", "habits"}) json.erase(name);
  if (const auto rules = json.find("rules"); rules != json.end()) {
    for (nlohmann::ordered_json& rule : *rules) rule.erase("why");
  }
  return json.dump();
}

}  // namespace

CompileRequest render(const Candidate& candidate, const Catalog& catalog, int sm_arch) {
  const KernelTemplate& kernel_template = *candidate.kernel_template;
  return make_request(concat(kernel_template.name, "/", kernel_template.source_file),
                      kernel_template.source, kernel_template.headers, config_header(candidate),
                      catalog, kernel_template.target(sm_arch), *candidate.problem);
}

CompileRequest render_reference(const BoundProblem& problem, const Catalog& catalog, int sm_arch) {
  const Operation& operation = problem.operation();
  return make_request(operation.name + "/reference.cu", operation.reference_source,
                      operation.reference_headers, reference_config_header(problem), catalog,
                      concat("sm_", sm_arch), problem);
}

std::string template_digest(const KernelTemplate& kernel_template,
                            const std::vector<DeviceHeader>& device_headers) {
  Hasher hasher;
  for (const JsonFile& manifest : kernel_template.manifests)
    hasher.add("manifest", binding_text(manifest));
  hasher.add("source", kernel_template.source);
  for (const auto& [name, text] : reached_headers(
           kernel_template.source, offered_headers(device_headers, kernel_template.headers))) {
    hasher.add(name, text);
  }
  return hasher.finish().hex();
}

CompileRequest render_input_kernels(const BoundProblem& problem, const Catalog& catalog,
                                    int sm_arch) {
  const Operation& operation = problem.operation();
  const InputKernels& kernels = *operation.input_kernels;
  return make_request(concat(operation.name, "/", kernels.source_file), kernels.source,
                      kernels.headers, reference_config_header(problem), catalog,
                      concat("sm_", sm_arch), problem);
}

}  // namespace kernwright
