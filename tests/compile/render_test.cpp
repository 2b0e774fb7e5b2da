#include "compile/render.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

namespace kernwright {
namespace {

class RenderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto catalog = Catalog::load({});
    ASSERT_TRUE(catalog) << catalog.error().message;
    catalog_ = *catalog;
    auto profile = find_profile("h200");
    ASSERT_TRUE(profile) << profile.error().message;
    profile_ = *profile;
  }

  /// The example problem of the template's operation, with `changes` to the default configuration.
  Candidate candidate(const char* name, const std::map<std::string, std::int64_t>& changes = {}) {
    const KernelTemplate& made = **catalog_->kernel_template(name);
    const Operation& operation = **catalog_->operation(made.operation);
    auto values = made.default_configuration.values();
    for (auto& [parameter, value] : values) {
      if (const auto found = changes.find(parameter); found != changes.end()) {
        value = found->second;
      }
    }
    auto result = make_candidate(made, *BoundProblem::bind(operation, operation.example),
                                 Configuration(values), profile_);
    EXPECT_TRUE(result) << result.error().message;
    return *result;
  }

  std::shared_ptr<const Catalog> catalog_;
  DeviceProfile profile_;
};

TEST_F(RenderTest, ARequestHasTheSourceTheConfigurationAndTheDeviceHeaders) {
  const CompileRequest request = render(candidate("matmul/persistent_wave"), *catalog_, 90);
  EXPECT_EQ(request.target, "sm_90a");
  EXPECT_EQ(request.output, OutputKind::cubin);
  EXPECT_EQ(request.name, "matmul/persistent_wave/kernel.cu");
  EXPECT_NE(request.source.find("matmul_persistent_wave"), std::string::npos);
  const auto has = [&](const char* name) {
    return std::any_of(request.headers.begin(), request.headers.end(),
                       [&](const auto& header) { return header.first == name; });
  };
  EXPECT_TRUE(has("kernwright/config.cuh"));
  EXPECT_TRUE(has("kernwright/math/types.cuh"));
  EXPECT_FALSE(has("kernwright/attention/scores.cuh")) << "no product includes it";
}

TEST_F(RenderTest, AHeaderChangesTheDigestsOfTemplatesThatReachIt) {
  const auto digests = [this](std::string_view added_to) {
    std::string changed;
    std::vector<DeviceHeader> headers = catalog_->headers();
    for (DeviceHeader& header : headers) {
      if (header.name != added_to) continue;
      changed = std::string(header.text) + "// a line\n";
      header.text = changed;
    }
    std::map<std::string, std::string> by_template;
    for (const KernelTemplate& one : catalog_->templates()) {
      by_template[one.name] = template_digest(one, headers);
    }
    return by_template;
  };
  const auto now = digests("");
  const auto changed = digests("kernwright/attention/scores.cuh");
  EXPECT_NE(now.at("attention/wave"), changed.at("attention/wave"));
  EXPECT_EQ(now.at("matmul/tiled"), changed.at("matmul/tiled"));
  EXPECT_EQ(now.at("rmsnorm/row"), changed.at("rmsnorm/row"));
  // By another header.
  EXPECT_NE(now.at("rmsnorm/row"), digests("kernwright/math/types.cuh").at("rmsnorm/row"));
}

TEST_F(RenderTest, WordsCostsAndHabitsOfAManifestDoNotChangeTheDigestOfATemplate) {
  const auto digest_with = [this](std::string_view from, std::string_view to) {
    KernelTemplate changed = **catalog_->kernel_template("matmul/persistent_wave");
    int changes = 0;
    for (JsonFile& manifest : changed.manifests) {
      const std::size_t at = manifest.text.find(from);
      if (at == std::string::npos) continue;
      manifest.text.replace(at, from.size(), to);
      ++changes;
    }
    EXPECT_EQ(changes, from.empty() ? static_cast<int>(changed.manifests.size()) : 1) << from;
    return template_digest(changed, *catalog_);
  };
  const std::string now = digest_with("", "");
  EXPECT_EQ(digest_with("TMA ring", "a ring by TMA"), now) << "description";
  EXPECT_EQ(digest_with("\"steps\": \"", "\"steps\": \"2 * "), now) << "cost";
  EXPECT_EQ(digest_with("STAGES >= 8 ||", "STAGES >= 7 ||"), now) << "habit";
  EXPECT_EQ(digest_with("ring, staging and barriers must fit", "all must fit"), now) << "why";
  EXPECT_NE(digest_with("SMEM_BYTES <= smem", "SMEM_BYTES < smem"), now) << "rule";
  EXPECT_NE(digest_with("\"block\": [\"THREADS", "\"block\": [\"32 + THREADS"), now) << "launch";
}

TEST_F(RenderTest, RunTimeParametersDoNotChangeTheRequest) {
  const CompileRequest request =
      render(candidate("matmul/persistent_wave", {{"GROUP", 4}}), *catalog_, 90);
  EXPECT_EQ(request.digest({}),
            render(candidate("matmul/persistent_wave", {{"GROUP", 16}}), *catalog_, 90).digest({}));
  EXPECT_NE(request.digest({}),
            render(candidate("matmul/persistent_wave", {{"BN", 128}, {"STAGES", 6}}), *catalog_, 90)
                .digest({}));
}

TEST_F(RenderTest, RunTimeDimsDoNotChangeTheRequest) {
  const Operation& matmul = **catalog_->operation("matmul");
  const KernelTemplate& made = **catalog_->kernel_template("matmul/persistent_wave");
  const auto other = make_candidate(
      made, *BoundProblem::bind(matmul, kernwright::matmul({8192, 8192, 8192}, DType::bf16)),
      made.default_configuration, profile_);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(render(*other, *catalog_, 90).digest({}),
            render(candidate("matmul/persistent_wave"), *catalog_, 90).digest({}));
}

TEST_F(RenderTest, TheReferenceIsCompiledForThePlainTarget) {
  const Operation& matmul = **catalog_->operation("matmul");
  const CompileRequest request =
      render_reference(*BoundProblem::bind(matmul, matmul.example), *catalog_, 90);
  EXPECT_EQ(request.target, "sm_90");
  EXPECT_NE(request.source.find("matmul_reference"), std::string::npos);
  EXPECT_EQ(request.name, "matmul/reference.cu");
}

}  // namespace
}  // namespace kernwright
