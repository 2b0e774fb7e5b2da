#include "cache/stores/single_flight_compiler.h"

#include <utility>

#include "cache/entries/key_lock.h"
#include "support/hash.h"
#include "support/try.h"

namespace kernwright {

Result<CompiledKernel> SingleFlightCompiler::compile(const CompileRequest& request) {
  KW_ASSIGN(const std::string compiler, compiler_->identity());
  const std::string digest = artifact_digest(request, compiler, *compiler_).hex();
  const KeyLock turn = KeyLock::acquire(root_, digest, patience_);
  if (Lookup<CompiledKernel> stored = store_.get(digest)) return *std::move(stored.value);
  Result<CompiledKernel> compiled = compiler_->compile(request);
  ++compiled_;
  // If the result cannot be stored, it is still returned.
  if (compiled) static_cast<void>(store_.put(digest, *compiled));
  return compiled;
}

}  // namespace kernwright
