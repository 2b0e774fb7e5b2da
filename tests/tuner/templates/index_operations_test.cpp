// Operations whose inputs have a meaning: what is drawn for them keeps it, and they compile.

#include "tests/tuner/templates/index_operations.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "compile/render.h"
#include "model/catalog/catalog.h"
#include "model/operation/draw.h"
#include "tests/doubles/fake_device.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/results.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

class IndexOperationsTest : public ::testing::Test {
 protected:
  IndexOperationsTest() {
    auto catalog = Catalog::load({files_.directory().path()});
    if (!catalog) throw std::runtime_error(catalog.error().message);
    catalog_ = std::move(catalog).value();
    FakeDeviceOptions options;
    options.profile = find_profile("h200").value();
    options.profile.l2_bytes = 1 << 15;
    device_ = make_fake_device(std::move(options), clock_);
  }

  BoundProblem bound(std::string_view text) const {
    return catalog_->bind(Problem::parse(text).value()).value();
  }

  /// Calls `look` with the values of input `tensor` in every set that there is.
  template <typename Look>
  void expect_in_every_set(std::string_view text, std::size_t tensor, const Look& look) {
    SCOPED_TRACE(text);
    const BoundProblem problem = bound(text);
    const TensorShape& shape = problem.shapes()[tensor];
    const auto sets = must(BufferSets::make(*device_, *ops_, problem.shapes(), L2State::cold, 3,
                                            {.exact = exact_draw(problem), .nan = true}));
    for (int set = BufferSets::kNanSet; set < sets.count(); ++set) {
      if ((set == BufferSets::kNanSet && !sets.has_nan_set()) ||
          (set == BufferSets::kExactSet && !sets.has_exact_set())) {
        continue;
      }
      std::vector<std::int64_t> values;
      const void* const data = reinterpret_cast<const void*>(sets.address(set, tensor));
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        values.push_back(static_cast<std::int64_t>(load_element(data, shape.dtype, i)));
      }
      SCOPED_TRACE(set);
      look(values);
    }
  }

  IndexOperations files_;
  std::shared_ptr<const Catalog> catalog_;
  ManualClock clock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
};

TEST_F(IndexOperationsTest, IndicesLieWithinTheTableInEverySet) {
  for (const char* index : {"int32", "int64"}) {
    expect_in_every_set(concat("gather n=900 rows=40 columns=3 dtype=bf16 index=", index), 1,
                        [](const std::vector<std::int64_t>& values) {
                          const std::set<std::int64_t> seen(values.begin(), values.end());
                          EXPECT_EQ(*seen.begin(), 0);
                          EXPECT_EQ(*seen.rbegin(), 39);
                          EXPECT_EQ(seen.size(), 40U);
                        });
  }
}

TEST_F(IndexOperationsTest, APermutationHoldsEveryNumberOnce) {
  for (const int n : {1, 2, 3, 16, 17, 1000, 4097}) {
    expect_in_every_set(concat("inverse n=", n, " dtype=int64"), 0,
                        [&](const std::vector<std::int64_t>& values) {
                          const std::set<std::int64_t> seen(values.begin(), values.end());
                          EXPECT_EQ(seen.size(), static_cast<std::size_t>(n));
                          EXPECT_EQ(*seen.begin(), 0);
                          EXPECT_EQ(*seen.rbegin(), n - 1);
                          EXPECT_NE(n > 100 && std::is_sorted(values.begin(), values.end()), true);
                        });
  }
}

TEST_F(IndexOperationsTest, OffsetsRiseFromZeroToTheirEnd) {
  for (const auto& [segments, total] : {std::pair{1, 100}, {300, 20000}, {300, 70}}) {
    expect_in_every_set(concat("count segments=", segments, " total=", total), 1,
                        [&, end = total](const std::vector<std::int64_t>& values) {
                          EXPECT_EQ(values.front(), 0);
                          EXPECT_EQ(values.back(), end);
                          EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
                        });
  }
}

TEST_F(IndexOperationsTest, ABoolIsZeroOrOne) {
  expect_in_every_set("count segments=30 total=5000", 0,
                      [](const std::vector<std::int64_t>& values) {
                        const auto ones = std::count(values.begin(), values.end(), 1);
                        EXPECT_EQ(ones + std::count(values.begin(), values.end(), 0), 5000);
                        EXPECT_GT(ones, 2000);
                        EXPECT_LT(ones, 4000);
                      });
}

TEST_F(IndexOperationsTest, OnlyFloatsOfATableHaveAnExactSetAndNan) {
  const auto sets = [&](std::string_view text) {
    const BoundProblem problem = bound(text);
    return BufferSets::make(*device_, *ops_, problem.shapes(), L2State::warm, 3,
                            {.exact = exact_draw(problem), .nan = true})
        .value();
  };
  EXPECT_TRUE(sets("gather n=9 rows=4 columns=3 dtype=bf16 index=int32").has_nan_set());
  EXPECT_TRUE(sets("gather n=9 rows=4 columns=3 dtype=int8 index=int32").has_exact_set());
  EXPECT_FALSE(sets("gather n=9 rows=4 columns=3 dtype=int8 index=int32").has_nan_set());
  EXPECT_FALSE(sets("inverse n=9 dtype=int32").has_exact_set());
}

using IndexOperationsToolkitTest = IndexOperationsTest;

TEST_F(IndexOperationsToolkitTest, TheirKernelsAndReferencesCompileInEveryDtype) {
  const std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
  if (auto toolkit = compiler->identity(); !toolkit) GTEST_SKIP() << toolkit.error().message;
  CompilePool pool(compiler, {});
  std::vector<std::string> problems{"inverse n=9 dtype=int32", "inverse n=9 dtype=int64",
                                    "count segments=3 total=9"};
  for (const DType dtype : catalog_->operation("gather").value()->type_variables[0].dtypes) {
    problems.push_back(concat("gather n=9 rows=4 columns=3 index=int64 dtype=", to_string(dtype)));
  }
  const DeviceProfile profile = find_profile("h200").value();
  for (const std::string& text : problems) {
    const BoundProblem problem = bound(text);
    const auto reference = pool.submit(render_reference(problem, *catalog_, 80)).get();
    EXPECT_TRUE(reference) << text << ": " << reference.error().message;
    const auto list = must(enumerate_candidates(*catalog_, problem, profile));
    ASSERT_FALSE(list.candidates.empty()) << text;
    const auto kernel = pool.submit(render(list.candidates[0], *catalog_, 90)).get();
    EXPECT_TRUE(kernel) << text << ": " << kernel.error().message;
  }
}

}  // namespace
}  // namespace kernwright
