#include "compile/compiler.h"

#include "support/text.h"

namespace kernwright {

Digest artifact_digest(const CompileRequest& request, std::string_view identity,
                       Compiler& compiler) {
  if (request.linked.empty()) return request.digest(identity);
  return request.digest(concat(identity, ", ", compiler.linker_identity()));
}

}  // namespace kernwright
