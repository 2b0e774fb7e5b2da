#include "tuner/data/input_drawer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

#include "tests/doubles/fake_device.h"
#include "tests/doubles/host_data_ops.h"
#include "tests/model/samples.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"

namespace kernwright {
namespace {

/// c[i] = a[index[i]], whose inputs kernels of its own draw.
constexpr std::string_view kDrawn = R"({
  "operation": "drawn", "description": "c[i] = a[index[i]]",
  "dims": {"n": {"bind": "exact"}},
  "tensors": [
    {"name": "a", "role": "in", "dtype": "fp32", "extent": ["2", "n"], "pitches": ["n + 4"]},
    {"name": "index", "role": "in", "dtype": "int32", "extent": ["n"], "when": "n > 4"},
    {"name": "c", "role": "out", "dtype": "fp32", "extent": ["n"], "exact": "none"}
  ],
  "scalars": [{"name": "alpha", "dtype": "fp32", "default": 1, "check": 3}],
  "inputs": {"draw": "draw.cu", "timing": "time", "exact": "bits", "count": "number",
             "grid": ["1"], "block": ["32"],
             "arguments": [{"tensor": "a"}, {"tensor": "index"}, {"scalar": "alpha"},
                           {"scalar": "seed"}]},
  "tolerance": {"accumulate": "fp32"},
  "flops": "n", "bytes": "16 * n", "example": {"n": 8},
  "reference": {"kernel": "drawn_reference", "grid": ["1"], "block": ["32"],
                "arguments": [{"tensor": "a"}, {"reference": "c"}, {"magnitude": "c"}]}
})";

class InputDrawerTest : public ::testing::Test {
 protected:
  InputDrawerTest() {
    for (const auto& [name, text] :
         {std::pair<std::string, std::string_view>{"drawn/operation.json", kDrawn},
          {"drawn/reference.cu", "reference"},
          {"drawn/draw.cu", "draw"}}) {
      if (!publish_file(directory_ / name, text)) throw std::runtime_error(name);
    }
    catalog_ = Catalog::load({directory_.path()}).value();
    FakeDeviceOptions options;
    options.profile = find_profile("h200").value();
    options.profile.l2_bytes = 1 << 12;
    // The first elements of a tensor: which kernel it was, alpha, and the seed.
    options.compute = [this](const ExecutionPlan& plan, const LaunchArguments& arguments) {
      const std::string& kernel = plan.launches[0].kernel;
      ++given_[static_cast<int>(std::ranges::count_if(
          arguments.tensors, [](DevicePointer tensor) { return tensor != 0; }))];
      const float which = kernel == "time"     ? 1.0F
                          : kernel == "bits"   ? 2.0F
                          : kernel == "number" ? 3.0F
                                               : 4.0F;
      for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
        if (arguments.tensors[i] == 0) continue;
        const float written[] = {which, static_cast<float>(arguments.scalars[0]),
                                 static_cast<float>(arguments.scalars[1])};
        std::memcpy(reinterpret_cast<void*>(arguments.tensors[i]), written, sizeof(written));
      }
    };
    device_ = make_fake_device(std::move(options), clock_);
    drawer_ = InputDrawer::make(*device_, pool_, problem(), *catalog_).value();
  }

  BoundProblem problem() const {
    return catalog_->bind(Problem::make("drawn", {{"n", 8}}, {})).value();
  }
  Result<BufferSets> make_sets(const CheckedSets& checked) {
    return BufferSets::make(*device_, *ops_, problem().shapes(), L2State::cold, 5, checked);
  }
  static const float* floats(DevicePointer at) { return reinterpret_cast<const float*>(at); }

  ScopedTempDir directory_;
  std::shared_ptr<const Catalog> catalog_;
  std::map<int, int> given_;  ///< launches by the number of tensors that they got
  ManualClock clock_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DataOps> ops_ = make_host_data_ops();
  CompilePool pool_{std::make_shared<FakeCompiler>(), {.threads = 1}};
  std::shared_ptr<const InputDrawer> drawer_;
};

TEST_F(InputDrawerTest, AKernelGetsOneTensorAndWhatItLeavesOutIsNan) {
  const TensorShape a = problem().shapes()[0];
  const auto buffer = device_->allocate(a.bytes()).value();
  ASSERT_TRUE(drawer_->draw(InputSet::exact, a, buffer->address(), std::uint64_t{7} << 11));
  const float* const drawn = floats(buffer->address());
  EXPECT_EQ(drawn[0], 2) << "the exact set's kernel";
  EXPECT_EQ(drawn[1], 3) << "what checks pass";
  EXPECT_EQ(drawn[2], 7) << "the seed's upper bits";
  for (int i = 3; i < 20; ++i) EXPECT_TRUE(std::isnan(drawn[i])) << i;
  EXPECT_EQ(given_, (std::map<int, int>{{1, 1}}));
  EXPECT_TRUE(drawer_->has(InputSet::count));
}

TEST_F(InputDrawerTest, AnOperationWithoutKernelsHasNone) {
  const Operation& add = *catalog_->operation("vector_add").value();
  const auto none = must(
      InputDrawer::make(*device_, pool_, BoundProblem::bind(add, add.example).value(), *catalog_));
  EXPECT_EQ(none, nullptr);
}

TEST_F(InputDrawerTest, AllTensorsOfASetHaveOneSeed) {
  const auto sets =
      must(make_sets({.exact = DrawKind::kernel, .nan = true, .count = true, .drawer = drawer_}));
  EXPECT_TRUE(sets.has_count_set());
  ASSERT_GT(sets.count(), 2);
  std::map<float, int> seeds;
  for (const auto& [set, kernel] : {std::pair{0, 1.0F},
                                    {BufferSets::kExactSet, 2.0F},
                                    {BufferSets::kCountSet, 3.0F},
                                    {1, 1.0F}}) {
    const float* const a = floats(sets.address(set, 0));
    EXPECT_EQ(a[0], kernel) << set;
    EXPECT_EQ(a[2], floats(sets.address(set, 1))[2]) << set;
    ++seeds[a[2]];
  }
  EXPECT_EQ(seeds.size(), 4U);
  const float* const twin = floats(sets.address(sets.twin(), 0));
  EXPECT_EQ(twin[2], floats(sets.address(0, 0))[2]);
  const float* const with_nan = floats(sets.address(BufferSets::kNanSet, 0));
  EXPECT_EQ(with_nan[0], 1);
  EXPECT_EQ(with_nan[2], twin[2]);
  EXPECT_EQ(sets.watched().size(), 4U * 6) << "four zones and two inputs of each set";
}

TEST_F(InputDrawerTest, AKernelMayDrawTheNanSet) {
  ASSERT_TRUE(publish_file(directory_ / "drawn/operation.json",
                           replaced(kDrawn, R"("count": "number")", R"("nan": "not_numbers")")));
  catalog_ = Catalog::load({directory_.path()}).value();
  drawer_ = InputDrawer::make(*device_, pool_, problem(), *catalog_).value();
  EXPECT_TRUE(drawer_->has(InputSet::nan));
  const auto sets = must(make_sets({.nan = true, .drawer = drawer_}));
  const float* const with_nan = floats(sets.address(BufferSets::kNanSet, 0));
  EXPECT_EQ(with_nan[0], 4);
  EXPECT_EQ(with_nan[2], floats(sets.address(0, 0))[2]) << "the seed of set 0";
}

TEST_F(InputDrawerTest, ThereIsNoCountSetUnlessItIsAskedFor) {
  EXPECT_FALSE(make_sets({.drawer = drawer_})->has_count_set());
  EXPECT_THAT(make_sets({}), Fails("nothing is given that draws a as its operation says"));
}

}  // namespace
}  // namespace kernwright
