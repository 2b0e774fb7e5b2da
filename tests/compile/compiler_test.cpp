#include "compile/compiler.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace kernwright {
namespace {

/// Has a linker and headers of names of one's own.
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

  std::string headers_identity(const CompileRequest&) override { return headers; }

  int asked = 0;
  std::string headers;

 private:
  std::string linker_;
};

TEST(ArtifactDigestTest, TheToolkitsHeadersCountWhereTheyAreIncluded) {
  NamedLinker compiler("linker");
  CompileRequest request;
  const Digest without = artifact_digest(request, "compiler", compiler);
  compiler.headers = "a";
  const Digest with_one = artifact_digest(request, "compiler", compiler);
  compiler.headers = "b";
  EXPECT_NE(without, with_one);
  EXPECT_NE(with_one, artifact_digest(request, "compiler", compiler));
}

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
