// A rule of a manifest is enforced by the compiler too, and reported at its place in the manifest.

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "compile/compiler.h"
#include "compile/render.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

constexpr const char* kManifest = R"json({
  "operation": "vector_add",
  "description": "one element a thread",
  "source": "kernel.cu",
  "arch": {"min": 80},
  "dims": {"n": "runtime"},
  "parameters": {"BLOCK": [128, 256]},
  "default": {"BLOCK": 128},
  "derived": {"TWICE": "BLOCK * 2"},
  "rules": [
    {"rule": "BLOCK % 128 == 0", "why": "whole groups of warps"}
  ],
  "launches": [{"kernel": "add", "grid": ["ceil_div(n, BLOCK)"], "block": ["BLOCK"],
                "arguments": [{"tensor": "c"}, {"int64": "n"}]}]
}
)json";
constexpr const char* kDerivedPlace = "vector_add/mine/manifest.json(9): error";
constexpr const char* kRulePlace = "vector_add/mine/manifest.json(11): error";

/// A user's template in a folder of its own, and the candidate that its default makes.
class PastedRuleToolkitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::string> identity = compiler_->identity();
    if (!identity) GTEST_SKIP() << identity.error().message;
    const std::filesystem::path folder = directory_ / "vector_add/mine";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "manifest.json") << kManifest;
    std::ofstream(folder / "kernel.cu") << "#include <kernwright/config.cuh>\n"
                                           "extern \"C\" __global__ void add(long long) {}\n";
    const auto catalog = Catalog::load({directory_.path()});
    ASSERT_TRUE(catalog) << catalog.error().message;
    catalog_ = *catalog;
    const auto made = catalog_->kernel_template("vector_add/mine");
    ASSERT_TRUE(made) << made.error().message;
    const Operation& operation = **catalog_->operation("vector_add");
    const auto candidate = make_candidate(**made, *BoundProblem::bind(operation, operation.example),
                                          (*made)->default_configuration, *find_profile("h200"));
    ASSERT_TRUE(candidate) << candidate.error().message;
    candidate_ = *candidate;
  }

  /// Returns the compiler's error for the candidate; empty if it accepts it.
  std::string compile_error() {
    const auto kernel = compiler_->compile(render(candidate_, *catalog_, 90));
    return kernel ? std::string() : kernel.error().message;
  }

  const std::unique_ptr<Compiler> compiler_ = make_toolkit_compiler();
  ScopedTempDir directory_;
  std::shared_ptr<const Catalog> catalog_;
  Candidate candidate_;
};

TEST_F(PastedRuleToolkitTest, AKeptRuleCompiles) { EXPECT_EQ(compile_error(), ""); }

TEST_F(PastedRuleToolkitTest, AViolatedRuleIsReportedAtItsLineOfTheManifest) {
  // The host would have refused it: only a host that errs sends it to the compiler.
  candidate_.configuration = Configuration({{"BLOCK", 100}});
  candidate_.scope.set("TWICE", 200);
  const std::string error = compile_error();
  EXPECT_NE(error.find(kRulePlace), std::string::npos) << error;
  EXPECT_NE(error.find("whole groups of warps"), std::string::npos) << error;
  EXPECT_EQ(error.find(kDerivedPlace), std::string::npos) << error;
}

TEST_F(PastedRuleToolkitTest, AnotherDerivedValueThanTheHostsIsReportedAtItsLine) {
  candidate_.scope.set("TWICE", 257);
  const std::string error = compile_error();
  EXPECT_NE(error.find(kDerivedPlace), std::string::npos) << error;
  EXPECT_NE(error.find("257"), std::string::npos) << error;
}

}  // namespace
}  // namespace kernwright
