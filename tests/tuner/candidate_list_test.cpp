#include <gtest/gtest.h>
#include <memory>
#include <string_view>

#include "model/catalog.h"
#include "tuner/tuning_session.h"

namespace kernwright {
namespace {

class ShippedCandidatesTest : public ::testing::Test {
 protected:
  const Candidate& standard(std::string_view text) {
    const Problem problem = Problem::parse(text).value();
    const Operation& operation = *catalog_->operation(problem.operation()).value();
    list_ = enumerate_candidates(*catalog_, operation, operation.normalize(problem).value(),
                                 find_profile("h200").value())
                .value();
    return list_.candidates[list_.default_index];
  }

 private:
  std::shared_ptr<const Catalog> catalog_ = Catalog::load({}).value();
  CandidateList list_;
};

TEST_F(ShippedCandidatesTest, ATemplateStandsWithItsDefaultWhereThatIsValid) {
  const Candidate& candidate = standard("matmul m=4096 n=6144 k=4096 dtype=bf16");
  EXPECT_EQ(candidate.kernel_template->name, "matmul/persistent_wave");
  EXPECT_EQ(candidate.configuration, candidate.kernel_template->default_configuration);
}

// Rows of d that TMA cannot store, and sums of fp8 that take twice the registers, each rule the
// default out; what remains of the templates is far slower than its neighbours.
TEST_F(ShippedCandidatesTest, ATemplateWhoseDefaultIsNotValidStandsWithItsNearest) {
  for (const std::string_view problem : {"matmul m=2047 n=6145 k=4095 dtype=bf16",
                                         "matmul m=4096 n=4096 k=4096 dtype=fp8_e4m3 out=bf16"}) {
    const Candidate& candidate = standard(problem);
    EXPECT_EQ(candidate.kernel_template->name, "matmul/persistent_wave") << problem;
    EXPECT_NE(candidate.configuration, candidate.kernel_template->default_configuration);
    EXPECT_GE(candidate.configuration.at("BM") * candidate.configuration.at("BN"), 128 * 128)
        << candidate.id();
  }
}

TEST(CandidateListTest, AGpuThatNoTemplateIsMadeForIsToldOf) {
  const auto catalog = Catalog::load({}).value();
  const auto told = [&](std::string_view text, const char* sku) {
    const Problem problem = Problem::parse(text).value();
    const Operation& operation = *catalog->operation(problem.operation()).value();
    const auto list = enumerate_candidates(
        *catalog, operation, operation.normalize(problem).value(), find_profile(sku).value());
    EXPECT_TRUE(list) << list.error().message;
    for (const std::string& note : list.value().notes) {
      if (note.find("is made for") != std::string::npos) return note;
    }
    return std::string();
  };
  const char* product = "matmul m=8 n=64 k=64 dtype=bf16";
  EXPECT_EQ(told(product, "b200"),
            "no template of matmul is made for sm_100; matmul/persistent_wave, matmul/skinny are "
            "for sm_90 alone, so what runs here is written for any GPU from sm_80 on, and slower "
            "than this one can be");
  for (const char* sku : {"h200", "a100_80", "l40s"}) EXPECT_EQ(told(product, sku), "") << sku;
  EXPECT_EQ(told("vector_add n=4096 dtype=bf16", "b200"), "") << "has none for one generation";
}

}  // namespace
}  // namespace kernwright
