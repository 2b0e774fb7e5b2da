#include "model/candidate/sized_plan.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "model/candidate/candidate_maker.h"
#include "model/catalog/catalog.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

/// Returns all facts of a tensor.
std::string facts_of(const TensorShape& tensor) {
  std::string text =
      concat(tensor.name, ' ', static_cast<int>(tensor.role), ' ', tensor.written.value_or(-1), ' ',
             to_string(tensor.dtype), ' ', tensor.alignment, ' ', tensor.warm, tensor.always,
             tensor.exact, tensor.infinite, ' ', tensor.in_place, ' ', to_string(tensor.draw.kind),
             ' ', tensor.draw.from, ' ', tensor.draw.to);
  for (const std::int64_t size : tensor.extent) text += concat(" x", size);
  for (const std::int64_t pitch : tensor.pitches) text += concat(" +", pitch);
  if (tensor.intermediate) text += to_string(*tensor.intermediate);
  if (const auto& values = tensor.values) {
    text += concat(' ', values->least, "..", values->most, ' ', values->rise.value_or(-1),
                   values->falls, values->counted_by, values->per.value_or(-1), values->rows);
  }
  return text;
}

void expect_same(const ExecutionPlan& plan, const ExecutionPlan& expected) {
  ASSERT_EQ(plan.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    EXPECT_EQ(facts_of(plan.tensors[i]), facts_of(expected.tensors[i]));
  }
  ASSERT_EQ(plan.scalars.size(), expected.scalars.size());
  for (std::size_t i = 0; i < plan.scalars.size(); ++i) {
    EXPECT_EQ(plan.scalars[i].name, expected.scalars[i].name);
    EXPECT_EQ(plan.scalars[i].dtype, expected.scalars[i].dtype);
    EXPECT_EQ(plan.scalars[i].default_value, expected.scalars[i].default_value);
  }
  EXPECT_EQ(plan.tensor_maps, expected.tensor_maps);
  EXPECT_EQ(plan.workspaces, expected.workspaces);
  EXPECT_EQ(plan.launches, expected.launches);
}

/// Compares plans with the plans of candidates that are made from the beginning.
class Comparison {
 public:
  /// Takes a few configurations of each template for a problem, and random sizes of each dim that
  /// its operation binds by bucket.
  void add(const BoundProblem& example) {
    std::vector<std::string> free;
    for (const auto& [name, size] : example.problem().dims()) {
      const Dim& dim = *std::ranges::find(example.operation().dims, name, &Dim::name);
      if (dim.match == DimMatch::bucket) free.push_back(name);
    }
    if (free.empty()) return;
    for (const KernelTemplate* of : catalog().templates_of(example.operation().name)) {
      if (!applies(*of, example, h200())) continue;
      const CandidateMaker maker(*of, example, h200());
      const Result<Candidate> usual = maker.make(of->default_configuration);
      if (usual) compare(*usual, free);
      const std::int64_t begin = static_cast<std::int64_t>(random_()) % of->space.size();
      std::vector<std::int64_t> points;
      maker.add_obeying(begin, std::min(begin + 2000, of->space.size()), points);
      if (points.empty()) continue;
      const Result<Candidate> drawn = maker.make(points[random_() % points.size()]);
      if (drawn) compare(*drawn, free);
    }
  }

  int equal() const { return equal_; }
  int refused() const { return refused_; }
  int computed() const { return computed_; }
  std::size_t operations() const { return operations_.size(); }

 private:
  void compare(const Candidate& made, const std::vector<std::string>& free) {
    const SizeCheck check(made, free);
    const SizedPlan plans(made, free, h200());
    for (int i = 0; i < 24; ++i) {
      std::vector<std::int64_t> sizes;
      for (const std::string& dim : free) {
        const std::int64_t now = *made.problem->scope().find(dim);
        const std::int64_t most = i % 3 == 0 ? 2 * now : i % 3 == 1 ? 64 : 20'000;
        sizes.push_back(random_() % 3 == 0 ? now : 1 + static_cast<std::int64_t>(random_()) % most);
      }
      const Result<BoundProblem> problem = catalog().bind(plans.problem(sizes));
      if (!problem || !check.holds(sizes)) continue;
      const Result<Candidate> expected =
          make_candidate(*made.kernel_template, *problem, made.configuration, h200());
      const auto plan = plans.at(sizes, h200());
      SCOPED_TRACE(concat(made.id(), " for ", problem->text()));
      ASSERT_EQ(plan.has_value(), expected.has_value())
          << (plan ? expected.error() : plan.error()).message;
      if (!plan) {
        ++refused_;
        const Result<Candidate> again = plans.candidate(sizes, h200());
        ASSERT_FALSE(again);
        EXPECT_EQ(again.error().message, expected.error().message);
        continue;
      }
      ++equal_;
      operations_.insert(problem->operation().name);
      expect_same((*plan)->whole(), expected->plan);
      EXPECT_EQ((*plan)->workspace_bytes(), expected->plan.workspace_bytes());
      EXPECT_EQ((*plan)->bytes(), total_bytes(expected->plan.tensors));
      computed_ += (*plan)->form() == plans.form() ? 1 : 0;
    }
  }

  std::minstd_rand random_{7};
  int equal_ = 0;
  int refused_ = 0;
  int computed_ = 0;  ///< of the equal ones: without a candidate
  std::set<std::string> operations_;
};

TEST(SizedPlanTest, PlansAreThoseOfCandidatesThatAreMadeFromTheBeginning) {
  Comparison comparison;
  std::size_t operations = 0;
  for (const Operation& operation : catalog().operations()) {
    const auto is_free = [](const Dim& dim) { return dim.match == DimMatch::bucket; };
    if (std::ranges::any_of(operation.dims, is_free)) ++operations;
    comparison.add(must(catalog().bind(operation.example)));
    for (const OperationCase& one : operation.cases) {
      for (const std::string& text : one.few()) {
        comparison.add(must(catalog().bind(must(Problem::parse(text)))));
      }
    }
  }
  EXPECT_EQ(comparison.operations(), operations) << "of the operations with families";
  EXPECT_GT(comparison.equal(), 2000);
  EXPECT_GT(comparison.computed(), comparison.equal() * 9 / 10);
}

TEST(SizedPlanTest, SharedMemoryThatFollowsTheSizesIsANumber) {
  const KernelTemplate& row = *must(catalog().kernel_template("rmsnorm/row"));
  const BoundProblem example =
      must(catalog().bind(must(Problem::parse("rmsnorm rows=4 columns=4096 dtype=bf16"))));
  auto values = row.default_configuration.values();
  std::ranges::find(values, "PROGRAMMATIC", &std::pair<std::string, std::int64_t>::first)->second =
      1;
  const Candidate made = must(make_candidate(row, example, Configuration(values), h200()));
  const SizedPlan plans(made, std::vector<std::string>{"rows"}, h200());
  std::set<std::uint32_t> demands;
  for (const std::int64_t rows : {1, 132, 133, 5000}) {
    const auto plan = must(plans.at(std::vector<std::int64_t>{rows}, h200()));
    EXPECT_EQ(plan->form(), plans.form()) << rows << ": it was computed";
    demands.insert(plan->whole().launches[0].dynamic_smem);
  }
  EXPECT_EQ(demands.size(), 2U) << "few blocks are spread by what they ask for";
}

TEST(SizedPlanTest, RefusesWhatCandidatesRefuse) {
  const KernelTemplate& stream = *must(catalog().kernel_template("matmul/stream"));
  const BoundProblem example =
      must(catalog().bind(must(Problem::parse("matmul m=3 n=4096 k=6144 dtype=fp16"))));
  const Candidate made =
      must(make_candidate(stream, example, stream.default_configuration, h200()));
  const SizedPlan plans(made, std::vector<std::string>{"m"}, h200());
  const std::vector<std::int64_t> huge{std::int64_t{1} << 60};
  EXPECT_FALSE(plans.at(huge, h200()));
  EXPECT_FALSE(plans.candidate(huge, h200()));
}

}  // namespace
}  // namespace kernwright
