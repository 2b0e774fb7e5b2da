#include "compile/compiler.h"

#include "support/text.h"

namespace kernwright {

Digest artifact_digest(const CompileRequest& request, std::string_view identity,
                       Compiler& compiler) {
  std::string makers(identity);
  if (const std::string headers = compiler.headers_identity(request); !headers.empty()) {
    makers += concat(", headers ", headers);
  }
  if (!request.linked.empty()) makers += concat(", ", compiler.linker_identity());
  return request.digest(makers);
}

}  // namespace kernwright
