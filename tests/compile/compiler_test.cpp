#include "compile/compiler.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace kernwright {
namespace {

/// Has a linker of a name of one's own.
class NamedLinker final : public Compiler {
 public:
  explicit NamedLinker(std::string linker) : linker_(std::move(linker)) {}

  Result<std::string> identity() override { return std::string("compiler"); }
  std::string linker_identity() override {
    ++asked;
    return linker_;
  }
  Result<CompiledKernel> compile(const CompileRequest&) override { return CompiledKernel{}; }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return CompiledKernel{};
  }

  int asked = 0;

 private:
  std::string linker_;
};

TEST(ArtifactDigestTest, TheLinkerCountsWhereSomethingIsLinked) {
  NamedLinker one("linker 1");
  NamedLinker other("linker 2");
  CompileRequest request;
  request.source = "x";
  EXPECT_EQ(artifact_digest(request, "compiler", one), request.digest("compiler"));
  EXPECT_EQ(one.asked, 0) << "it would be loaded for nothing";
  request.linked = {{"f", "bits"}};
  EXPECT_NE(artifact_digest(request, "compiler", one), artifact_digest(request, "compiler", other));
  EXPECT_NE(artifact_digest(request, "compiler", one), artifact_digest(request, "other", one));
}

}  // namespace
}  // namespace kernwright
