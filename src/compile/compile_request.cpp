#include "compile/compile_request.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace kernwright {

Digest CompileRequest::digest(std::string_view compiler) const {
  Hasher hasher;
  hasher.add("compiler", compiler).add("target", target);
  hasher.add("output", output == OutputKind::cubin ? "cubin" : "lto_ir");
  // The counts make sure that an option cannot be taken for a header.
  hasher.add("options", static_cast<std::int64_t>(options.size()));
  for (const std::string& option : options) hasher.add("option", option);
  hasher.add("headers", static_cast<std::int64_t>(headers.size()));
  for (const auto& [header, text] : headers) hasher.add("name", header).add("text", text);
  for (const LinkedInput& input : linked) hasher.add("linked", input.lto_ir);
  hasher.add("source", source);
  return hasher.finish();
}

Resources CompiledKernel::resources() const {
  const auto worst = std::max_element(
      entries.begin(), entries.end(), [](const KernelEntry& a, const KernelEntry& b) {
        return std::tuple(a.resources.spill_bytes(), a.resources.registers) <
               std::tuple(b.resources.spill_bytes(), b.resources.registers);
      });
  return worst == entries.end() ? Resources{} : worst->resources;
}

}  // namespace kernwright
