// Sizes that nobody asked for before, in families that have a shortlist.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "cache/stores/record_store.h"
#include "service/serve/served_kernel.h"
#include "tests/service/core_fixture.h"

namespace kernwright {
namespace {

class ShortlistCoreTest : public ServiceCoreTest {
 protected:
  ShortlistCoreTest() { shortlists_ = true; }

  /// A service that has made the shortlist of `problem_`'s family.
  std::shared_ptr<ServiceCore> shortlisted(MissPolicy policy = MissPolicy::predict) {
    auto core = open(policy);
    EXPECT_TRUE(core->get_best_kernel(problem_));
    core->wait_for_shortlists();
    return core;
  }
  std::size_t records() const { return RecordStore(cache_.path()).list_heads().size(); }

  const Problem other_ = vector_add(900'000, DType::bf16);
  const Problem tuned_ = vector_add(9'000, DType::bf16);
  const Problem near_ = vector_add(9'010, DType::bf16);
  const Problem other_interval_ = vector_add(20'000'000, DType::bf16);
};

TEST_F(ShortlistCoreTest, ASizeOfTheFamilyNeedsNoCompileNoLoadAndNoRecord) {
  const auto core = shortlisted();
  const std::size_t before = records();
  world_.compiles = 0;
  for (const std::int64_t n : {900'000, 5, 7'000, 333'333}) {
    const Result<Kernel> kernel = core->get_best_kernel(vector_add(n, DType::bf16));
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ(kernel->match(), Match::predicted);
    EXPECT_EQ(kernel->summary().reason, MissReason::absent);
    EXPECT_GT(kernel->summary().predicted_us, 0);
    EXPECT_EQ(kernel->arguments()[0].extent, std::vector<std::int64_t>{n});
  }
  EXPECT_EQ(world_.compiles, 0);
  EXPECT_EQ(records(), before) << "the cache does not grow with the sizes";
  ASSERT_TRUE(core->get_best_kernel(other_interval_));
  EXPECT_EQ(records(), before + 1) << "the first of a family is ranked as before";
}

TEST_F(ShortlistCoreTest, APrewarmedFamilyHasReservedItsLargestWorkspaceAndKeepsThePool) {
  const auto core = open();
  must(core->prewarm_family(must(Problem::parse("argmax rows=1..300 columns=128256 dtype=bf16"))));
  std::size_t reserved = 0;
  for (const FakeDriver::PoolMemory& memory : world_.driver.pool_memory) {
    reserved = std::max(reserved, memory.bytes);
    EXPECT_EQ(memory.taken_on, memory.returned_on);
  }
  EXPECT_GT(reserved, 0U);
  std::size_t largest = 0;
  for (std::int64_t rows = 1; rows <= 300; ++rows) {
    const auto problem =
        Problem::make("argmax", {{"rows", rows}, {"columns", 128256}}, {{"dtype", "bf16"}});
    const auto bytes = must(core->get_best_kernel(problem)).workspace_bytes();
    largest = std::max(largest, static_cast<std::size_t>(bytes));
  }
  EXPECT_LE(largest, reserved);
  EXPECT_GE(2 * largest, reserved);
  EXPECT_EQ(std::ranges::count(world_.driver.calls, "cuMemPoolDestroy"), 0);
  world_.driver.failures["cuMemAllocFromPoolAsync"] = CUDA_ERROR_OUT_OF_MEMORY;
  must(core->prewarm_family(must(Problem::parse("argmax rows=1..300 columns=128256 dtype=bf16"))));
}

// Looking for the largest workspace at all sizes of all dims would take hours.
TEST_F(ShortlistCoreTest, AFamilyOfManyRangedDimsIsPrewarmedSoon) {
  const auto core = open();
  must(core->prewarm_family(
      must(Problem::parse("attention kv_heads=1 heads=8 kv_len=65536 page=16 head_dim=64 "
                          "dtype=bf16 cache=paged pages=65536 batch=2..8 lengths=ragged "
                          "q_len=9..16 q_total=2..100"))));
  EXPECT_FALSE(world_.driver.pool_memory.empty());
}

TEST_F(ShortlistCoreTest, ANewSizeAsksTheDriverOnlyForTheTensorMapsThatDiffer) {
  const auto core = open();
  must(core->prewarm_family(must(Problem::parse("matmul m=1024..4096 n=4096 k=4096 dtype=bf16"))));
  world_.driver.current = reinterpret_cast<CUcontext>(0xcc);
  const auto calls_of = [&](std::int64_t m) {
    world_.driver.calls.clear();
    const Kernel kernel = must(core->get_best_kernel(matmul({m, 4096, 4096}, DType::bf16)));
    must(kernel.launch(nullptr, {0x10000ULL, 0x20000ULL, 0x30000ULL}));
    return world_.driver.calls;
  };
  for (const std::int64_t m : {1'111, 2'345, 4'000}) {
    const std::vector<std::string> first = calls_of(m);
    EXPECT_EQ(std::ranges::count(first, "cuTensorMapEncodeTiled"), 2) << "of a and d, not of b";
    EXPECT_EQ(std::ranges::count(first, "cuLaunchKernelEx"), 1);
    EXPECT_EQ(first.size(), 3U);
    EXPECT_EQ(calls_of(m), std::vector<std::string>{"cuLaunchKernelEx"});
  }
}

TEST_F(ShortlistCoreTest, APredictionThatTheCacheHasMakesTheShortlistToo) {
  ASSERT_TRUE(open()->get_best_kernel(problem_));
  const auto core = shortlisted();
  const std::size_t before = records();
  ASSERT_TRUE(core->get_best_kernel(other_));
  EXPECT_EQ(records(), before);
}

TEST_F(ShortlistCoreTest, ARecordComesFirst) {
  ASSERT_TRUE(open()->tune(tuned_, few_trials()));
  const auto core = shortlisted();
  EXPECT_EQ(core->get_best_kernel(tuned_)->match(), Match::exact);
}

TEST_F(ShortlistCoreTest, ABannedKernelIsNotTaken) {
  auto core = shortlisted();
  const auto choice_of = [&] {
    const Result<Kernel> kernel = core->get_best_kernel(other_);
    EXPECT_TRUE(kernel) << kernel.error().message;
    return ServedKernel::of(*LoadedKernel::of(*kernel)).record().head.winner.choice;
  };
  const Choice taken = choice_of();
  ASSERT_TRUE(core->cache().put_override({.key = core->site().key(*core->bind(other_)),
                                          .action = OverrideAction::ban,
                                          .choice = taken,
                                          .why = "it is broken"}));
  core = shortlisted();
  EXPECT_NE(choice_of(), taken);
}

TEST_F(ShortlistCoreTest, AKernelThatSpillsIsNotTaken) {
  std::atomic<int> spilled{0};
  world_.spills = [&](const CompileRequest& request) {
    const bool spills = request.headers[0].second.find(" THREADS = 128;") != std::string::npos;
    spilled += spills ? 1 : 0;
    return spills ? 4096 : 0;
  };
  const auto core = shortlisted();
  EXPECT_GT(spilled, 0);
  const Result<Kernel> kernel = core->get_best_kernel(other_);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->summary().configuration.find("THREADS=128 "), std::string::npos)
      << kernel->summary().configuration;
}

TEST_F(ShortlistCoreTest, OthersTakeThePlaceOfKernelsThatSpill) {
  world_.spills = [](const CompileRequest& request) {
    return request.headers[0].second.find(" THREADS = 512;") == std::string::npos ? 4096 : 0;
  };
  const auto core = shortlisted();
  core->seal(SealMode::error);
  for (const std::int64_t n : {9'010, 333'333, 900'000}) {
    const Result<Kernel> kernel = core->get_best_kernel(vector_add(n, DType::bf16));
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_NE(kernel->summary().configuration.find("THREADS=512"), std::string::npos)
        << kernel->summary().configuration;
  }
}

TEST_F(ShortlistCoreTest, ASealedServiceAnswersEverySizeOfTheFamily) {
  const auto core = shortlisted();
  core->seal(SealMode::error);
  world_.compiles = 0;
  EXPECT_TRUE(core->get_best_kernel(other_));
  EXPECT_EQ(core->builder().seal().counted(), 0U);
  EXPECT_FALSE(core->get_best_kernel(other_interval_)) << "of another family";
  EXPECT_EQ(world_.compiles, 0);
}

TEST_F(ShortlistCoreTest, NothingIsPredictedWhereThePolicyForbidsIt) {
  ASSERT_TRUE(open()->get_best_kernel(problem_));
  for (const MissPolicy policy : {MissPolicy::fail, MissPolicy::predict}) {
    min_match_ = policy == MissPolicy::fail ? Match::none : Match::recheck;
    const auto core = open(policy);
    static_cast<void>(core->get_best_kernel(problem_));
    core->wait_for_shortlists();
    EXPECT_FALSE(core->get_best_kernel(other_));
  }
}

TEST_F(ShortlistCoreTest, ASizeOfTheFamilyIsFoundWithoutALookAtTheCache) {
  const auto core = shortlisted();
  const int loads = world_.loads;
  const auto lookups = [&] {
    std::uint64_t count = 0;
    for (const LookupCount& one : core->counters().read()) count += one.count;
    return count;
  };
  const std::uint64_t before = lookups();
  const Result<Kernel> kernel = core->get_best_kernel(other_);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(world_.loads, loads) << "its plan is made when it is used";
  EXPECT_EQ(lookups(), before + 1);
  EXPECT_EQ(kernel->summary().problem, other_.text());
  EXPECT_EQ(kernel->arguments()[0].extent, std::vector<std::int64_t>{900'000});
  EXPECT_EQ(LoadedKernel::of(*kernel), LoadedKernel::of(*core->get_best_kernel(other_)));
  EXPECT_EQ(lookups(), before + 1) << "it is kept";
}

TEST_F(ShortlistCoreTest, AKernelThatWasNotUsedBeforeItsServiceClosedIsRefused) {
  auto core = shortlisted();
  const Kernel used = must(core->get_best_kernel(other_));
  EXPECT_EQ(used.summary().problem, other_.text());
  const Kernel unused = must(core->get_best_kernel(vector_add(900'001, DType::bf16)));
  core.reset();
  EXPECT_EQ(used.summary().problem, other_.text());
  EXPECT_THAT(unused.launch(nullptr, {}),
              Fails(::testing::HasSubstr("the service was closed before")));
}

TEST_F(ShortlistCoreTest, MemoryDoesNotGrowWithTheSizes) {
  const auto core = shortlisted();
  const auto loaded = core->metrics().loaded_kernels;
  std::vector<std::weak_ptr<const LoadedKernel>> kernels;
  for (std::int64_t n = 1; n <= 4000; ++n) {
    const Result<Kernel> kernel = core->get_best_kernel(vector_add(n, DType::bf16));
    ASSERT_TRUE(kernel) << kernel.error().message;
    kernels.push_back(LoadedKernel::of(*kernel));
  }
  const auto alive = std::ranges::count_if(kernels, [](const auto& one) { return !one.expired(); });
  EXPECT_LE(alive, 600);
  EXPECT_EQ(core->metrics().loaded_kernels, loaded) << "they share the code of a few";
}

TEST_F(ShortlistCoreTest, AMeasuredKernelAnswersNearSizes) {
  const Problem far = vector_add(300'000, DType::bf16);
  ASSERT_TRUE(open()->tune(tuned_, few_trials()));
  const auto core = shortlisted();
  EXPECT_EQ(core->get_best_kernel(near_)->match(), Match::bucket);
  EXPECT_EQ(core->get_best_kernel(tuned_)->match(), Match::exact);
  EXPECT_EQ(core->get_best_kernel(far)->match(), Match::predicted);
}

TEST_F(ShortlistCoreTest, TheAnswerOfANeighbourMakesTheFamilyToo) {
  ASSERT_TRUE(open()->tune(tuned_, few_trials()));
  const auto core = open();
  EXPECT_EQ(core->get_best_kernel(near_)->match(), Match::bucket);
  core->wait_for_shortlists();
  core->seal(SealMode::error);
  EXPECT_EQ(core->get_best_kernel(vector_add(9'020, DType::bf16))->match(), Match::bucket);
  EXPECT_EQ(core->get_best_kernel(vector_add(300'000, DType::bf16))->match(), Match::predicted);
}

TEST_F(ShortlistCoreTest, ATuningIsHeededByTheFamily) {
  const auto core = shortlisted();
  EXPECT_EQ(core->get_best_kernel(tuned_)->match(), Match::predicted);
  EXPECT_EQ(core->get_best_kernel(near_)->match(), Match::predicted);
  ASSERT_TRUE(core->tune(tuned_, few_trials()));
  core->wait_for_shortlists();
  EXPECT_EQ(core->get_best_kernel(tuned_)->match(), Match::exact);
  EXPECT_EQ(core->get_best_kernel(near_)->match(), Match::bucket);
}

TEST_F(ShortlistCoreTest, ASizeInACaptureIsServed) {
  world_.driver.current = reinterpret_cast<CUcontext>(0xcc);
  const auto core = shortlisted();
  world_.driver.capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const Result<Kernel> kernel = core->get_best_kernel(other_, &world_);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->summary().problem, other_.text());
  EXPECT_EQ(world_.driver.capture_status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

TEST_F(ShortlistCoreTest, AKernelThatCannotBeLoadedFailsWhenItIsLaunched) {
  const auto core = open();
  must(core->get_best_kernel(rmsnorm(2000, 5120, DType::bf16)));
  core->wait_for_shortlists();
  const Problem too_large = rmsnorm(20'000'000, 5120, DType::bf16);
  const Result<Kernel> kernel = core->get_best_kernel(too_large);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto launched = kernel->launch(nullptr, {});
  ASSERT_FALSE(launched);
  EXPECT_NE(launched.error().message.find("take 409.6 GB"), std::string::npos)
      << launched.error().message;
  EXPECT_EQ(kernel->summary().problem, too_large.text());
}

TEST_F(ShortlistCoreTest, EachSizeIsTunedIfThatIsThePolicy) {
  const auto core = shortlisted(MissPolicy::tune_in_background);
  ASSERT_TRUE(core->get_best_kernel(tuned_));
  core->wait_for_background();
  EXPECT_EQ(core->get_best_kernel(tuned_)->match(), Match::exact);
}

}  // namespace
}  // namespace kernwright
