#include "bench/common/mutant_builds.h"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>

#include "bench/common/mutant_generator.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<MutantBuilds> make(const MutantList& list) {
  return must(MutantBuilds::make(list, *find_profile("h200")));
}

/// The list that is built in, with mutants that operators make.
MutantList make_list(std::uint64_t seed) {
  auto list = must(MutantList::built_in());
  const auto catalog = must(Catalog::load({}));
  const auto added = add_generated_mutants(list, *catalog, *find_profile("h200"), seed);
  EXPECT_TRUE(added) << added.error().message;
  return list;
}
const MutantList& whole_list() {
  static const MutantList list = make_list(1);
  return list;
}

TEST(MutantBuildsTest, EveryMutantOfTheListApplies) {
  const auto list = must(MutantList::built_in());
  EXPECT_GE(list.mutants.size(), 50U);
  const auto builds = make(list);
  std::set<const Mutant*> tried;
  for (const MutantTry& made : builds->tries()) {
    if (!made.mutant) continue;
    tried.insert(made.mutant);
    const MutantTry& control = builds->tries()[made.control];
    EXPECT_EQ(control.mutant, nullptr);
    EXPECT_EQ(control.where, made.where);
    EXPECT_EQ(control.candidate.problem->text(), made.candidate.problem->text());
  }
  EXPECT_EQ(tried.size(), list.mutants.size());
}

TEST(MutantBuildsTest, OperatorsMakeMutantsOfBothKindsOfEveryTemplate) {
  const MutantList& list = whole_list();
  std::map<std::pair<std::string, MutantKind>, int> count;
  std::set<std::string> names;
  for (const Mutant& mutant : list.mutants) {
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    if (!mutant.place) continue;
    ++count[{mutant.kernel_template, mutant.kind}];
    EXPECT_NE(mutant.find, mutant.replace) << mutant.name;
    EXPECT_FALSE(mutant.cases.empty()) << mutant.name;
  }
  const auto catalog = must(Catalog::load({}));
  for (const KernelTemplate& made : catalog->templates()) {
    for (const MutantKind kind : {MutantKind::arithmetic, MutantKind::indexing}) {
      EXPECT_GE((count[{made.name, kind}]), 3) << made.name << ' ' << to_string(kind);
    }
  }
}

TEST(MutantBuildsTest, AMutantThatAnOperatorMadeDiffersFromItsControl) {
  const MutantList& list = whole_list();
  const auto builds = make(list);
  std::set<const Mutant*> tried;
  std::size_t made_by_operators = 0;
  for (const Mutant& mutant : list.mutants) made_by_operators += mutant.place ? 1 : 0;
  for (const MutantTry& made : builds->tries()) {
    if (!made.mutant || !made.mutant->place) continue;
    tried.insert(made.mutant);
    const MutantTry& control = builds->tries()[made.control];
    if (made.mutant->file == "manifest.json") continue;
    EXPECT_TRUE(made.request.source != control.request.source ||
                made.request.headers != control.request.headers)
        << made.mutant->name;
  }
  // The rules and the reader of manifests refuse a few.
  EXPECT_GE(tried.size() * 10, made_by_operators * 9);
}

TEST(MutantBuildsTest, ASeedChoosesThePlaces) {
  const auto names = [](const MutantList& list) {
    std::set<std::string> found;
    for (const Mutant& mutant : list.mutants) found.insert(mutant.name);
    return found;
  };
  EXPECT_EQ(names(make_list(1)), names(whole_list()));
  EXPECT_NE(names(make_list(2)), names(whole_list()));
}

TEST(MutantBuildsTest, WaitsAreBounded) {
  const auto list = must(MutantList::built_in());
  const auto builds = make(list);
  for (const MutantTry& made : builds->tries()) {
    for (const auto& [name, text] : made.request.headers) {
      if (name != "kernwright/ptx/mbarrier.cuh") continue;
      EXPECT_THAT(text, HasSubstr("globaltimer")) << made.label();
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
  constexpr std::size_t kEvery = 67;
  const MutantList& list = whole_list();
  const auto builds = make(list);
  std::vector<const MutantTry*> sample;
  std::set<std::size_t> controls;
  for (std::size_t i = list.cases.size(); i < builds->tries().size(); i += kEvery) {
    const MutantTry& made = builds->tries()[i];
    if (controls.insert(made.control).second) sample.push_back(&builds->tries()[made.control]);
    sample.push_back(&made);
  }
  const std::vector<Build> compiled = compile(sample);
  const std::vector<Change> changes = changes_of(sample, compiled);
  EXPECT_EQ(find_defects(sample, compiled, changes), std::vector<std::string>());
  // Most others are in branches for other flags and dtypes.
  std::map<Change, int> count;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    if (sample[i]->mutant && sample[i]->mutant->place) ++count[changes[i]];
  }
  EXPECT_GT(3 * count[Change::code], count[Change::none] + count[Change::no_code]);
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
       "find": ["{\"int64\": \"n\"}"], "replace": ["{\"int64\": \"n - 1\", \"name\": \"n\"}"],
       "fault": "one less"}
    ]
  })";
  const EmbeddedFile file{"list.json", kText};
  const auto list = must(MutantList::parse(std::span(&file, 1)));
  const auto builds = make(list);
  std::vector<const MutantTry*> tries;
  for (const MutantTry& made : builds->tries()) tries.push_back(&made);
  const std::vector<Build> compiled = compile(tries);
  const auto changes = changes_of(tries, compiled);
  EXPECT_EQ(changes,
            (std::vector<Change>{Change::code, Change::none, Change::no_code, Change::code}));
  const std::vector<std::string> defects = find_defects(tries, compiled, changes);
  ASSERT_EQ(defects.size(), 2U);
  EXPECT_EQ(defects[0], "idle on vector_add/vectorized, tail is what its control is");
  EXPECT_THAT(defects[1], HasSubstr("broken on vector_add/vectorized, tail does not compile"));
}

}  // namespace
}  // namespace kernwright
