#include "bench/common/mutant_builds.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

namespace kernwright {
namespace {

std::unique_ptr<MutantBuilds> make(const MutantList& list) {
  auto builds = MutantBuilds::make(list, *find_profile("h200"));
  EXPECT_TRUE(builds) << builds.error().message;
  return builds ? *std::move(builds) : nullptr;
}

TEST(MutantBuildsTest, EveryMutantOfTheListApplies) {
  const auto list = MutantList::built_in();
  ASSERT_TRUE(list) << list.error().message;
  std::map<MutantKind, int> count;
  for (const Mutant& mutant : list->mutants) ++count[mutant.kind];
  EXPECT_GE(count[MutantKind::arithmetic] + count[MutantKind::indexing], 150);
  EXPECT_GE(count[MutantKind::synchronisation], 50);

  const auto builds = make(*list);
  ASSERT_TRUE(builds);
  std::set<const Mutant*> tried;
  for (const MutantTry& made : builds->tries()) {
    if (!made.mutant) continue;
    tried.insert(made.mutant);
    const MutantTry& control = builds->tries()[made.control];
    EXPECT_EQ(control.mutant, nullptr);
    EXPECT_EQ(control.where, made.where);
    EXPECT_EQ(control.candidate.problem->text(), made.candidate.problem->text());
  }
  EXPECT_EQ(tried.size(), list->mutants.size());
}

TEST(MutantBuildsTest, EveryTemplateHasMutants) {
  const auto list = MutantList::built_in();
  ASSERT_TRUE(list) << list.error().message;
  const auto builds = make(*list);
  ASSERT_TRUE(builds);
  std::set<std::string> tried;
  for (const Mutant& mutant : list->mutants) tried.insert(mutant.kernel_template);
  const auto catalog = Catalog::load({});
  ASSERT_TRUE(catalog);
  for (const KernelTemplate& made : (*catalog)->templates()) EXPECT_TRUE(tried.contains(made.name));
}

TEST(MutantBuildsTest, WaitsAreBounded) {
  const auto list = MutantList::built_in();
  ASSERT_TRUE(list) << list.error().message;
  const auto builds = make(*list);
  ASSERT_TRUE(builds);
  for (const MutantTry& made : builds->tries()) {
    for (const auto& [name, text] : made.request.headers) {
      if (name != "kernwright/ptx/mbarrier.cuh") continue;
      EXPECT_NE(text.find("globaltimer"), std::string::npos) << made.label();
    }
  }
}

class MutantBuildsToolkitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
    if (auto toolkit = compiler->identity(); !toolkit) GTEST_SKIP() << toolkit.error().message;
    pool_ = std::make_unique<CompilePool>(std::move(compiler), CompilePoolOptions{});
  }

  std::vector<Build> compile(const std::vector<const MutantTry*>& tries) {
    std::vector<Build> compiled;
    for (const MutantTry* made : tries) compiled.push_back(pool_->submit(made->request));
    return compiled;
  }

  std::unique_ptr<CompilePool> pool_;
};

/// A sample over the whole list; the bench's --compile-only takes all of it.
TEST_F(MutantBuildsToolkitTest, MutantsCompileToOtherCodeThanTheirControls) {
  constexpr std::size_t kEvery = 19;
  const auto list = MutantList::built_in();
  ASSERT_TRUE(list) << list.error().message;
  const auto builds = make(*list);
  ASSERT_TRUE(builds);
  std::vector<const MutantTry*> sample;
  std::set<std::size_t> controls;
  for (std::size_t i = list->cases.size(); i < builds->tries().size(); i += kEvery) {
    const MutantTry& made = builds->tries()[i];
    if (controls.insert(made.control).second) sample.push_back(&builds->tries()[made.control]);
    sample.push_back(&made);
  }
  EXPECT_EQ(find_defects(sample, compile(sample)), std::vector<std::string>());
}

TEST_F(MutantBuildsToolkitTest, FindsMutantsThatChangeNothingOrDoNotCompile) {
  constexpr std::string_view kText = R"({
    "template": "vector_add/vectorized",
    "cases": {"tail": {"problem": "vector_add n=100 dtype=fp32", "configuration": {}}},
    "mutants": [
      {"name": "idle", "kind": "arithmetic", "file": "kernel.cu", "on": ["tail"],
       "find": ["// after the last whole vector"], "replace": [""], "fault": "none"},
      {"name": "broken", "kind": "arithmetic", "file": "kernel.cu", "on": ["tail"],
       "find": ["float sum[VECTOR];"], "replace": [""], "fault": "no sum"},
      {"name": "short", "kind": "arithmetic", "file": "manifest.json", "on": ["tail"],
       "find": ["{\"int64\": \"n\"}"], "replace": ["{\"int64\": \"n - 1\"}"], "fault": "one less"}
    ]
  })";
  const EmbeddedFile file{"list.json", kText};
  const auto list = MutantList::parse(std::span(&file, 1));
  ASSERT_TRUE(list) << list.error().message;
  const auto builds = make(*list);
  ASSERT_TRUE(builds);
  std::vector<const MutantTry*> tries;
  for (const MutantTry& made : builds->tries()) tries.push_back(&made);
  const std::vector<std::string> defects = find_defects(tries, compile(tries));
  ASSERT_EQ(defects.size(), 2U);
  EXPECT_EQ(defects[0], "idle on vector_add/vectorized, tail is what its control is");
  EXPECT_NE(defects[1].find("broken on vector_add/vectorized, tail does not compile"),
            std::string::npos);
}

}  // namespace
}  // namespace kernwright
