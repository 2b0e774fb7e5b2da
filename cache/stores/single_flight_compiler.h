#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cache/stores/artifact_store.h"
#include "compile/compiler.h"

namespace kernwright {

/// Compiles what the store lacks, and puts it there. Of all processes on the store's directory that
/// want one artifact, one compiles it. The others wait for it, at most for `patience`, and then do
/// it themselves. Different artifacts never wait for each other. Thread-safe.
class SingleFlightCompiler final : public Compiler {
 public:
  SingleFlightCompiler(std::unique_ptr<Compiler> compiler, std::filesystem::path root,
                       std::chrono::milliseconds patience)
      : compiler_(std::move(compiler)),
        root_(std::move(root)),
        store_(root_),
        patience_(patience) {}

  Result<std::string> identity() override { return compiler_->identity(); }
  std::string headers_identity(const CompileRequest& request) override {
    return compiler_->headers_identity(request);
  }
  std::string linker_identity() override { return compiler_->linker_identity(); }
  Result<CompiledKernel> compile(const CompileRequest& request) override;
  Result<CompiledKernel> link(const std::vector<std::string>& lto_ir,
                              const std::string& target) override {
    return compiler_->link(lto_ir, target);
  }

  /// The number of requests that it compiled itself.
  int compiled() const { return compiled_; }

 private:
  std::unique_ptr<Compiler> compiler_;
  std::filesystem::path root_;
  ArtifactStore store_;
  std::chrono::milliseconds patience_;
  std::atomic<int> compiled_{0};
};

}  // namespace kernwright
