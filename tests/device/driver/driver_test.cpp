#include "device/driver/driver.h"

#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/launcher.h"
#include "device/driver/handles.h"
#include "tests/doubles/fake_driver.h"
#include "tests/results.h"

namespace kernwright {
namespace {

TEST(DriverTest, WithoutOneEveryDoorSaysUnavailableAndWhy) {
  const Result<const DriverApi*> driver = load_driver();
  if (driver) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(driver.error().code, ErrorCode::unavailable);
  EXPECT_FALSE(driver.error().message.empty());

  EXPECT_THAT(cuda_device_count(), Fails(ErrorCode::unavailable, driver.error().message));
  EXPECT_EQ(open_cuda_device(0).error().code, ErrorCode::unavailable);
  EXPECT_EQ(describe_cuda_device(0).error().code, ErrorCode::unavailable);
  EXPECT_EQ(Launcher::load("", {}).error().code, ErrorCode::unavailable);
}

TEST(DriverTest, ErrorNamesFunctionCodeAndText) {
  FakeDriver driver;
  const Error error = driver_error(driver.api(), {"cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(error.code, ErrorCode::device);
  EXPECT_EQ(error.message, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
}

TEST(DriverTest, AnErrorWithoutANameHasItsNumber) {
  FakeDriver driver;
  DriverApi api = driver.api();
  api.get_error_name = [](CUresult, const char**) { return CUDA_ERROR_INVALID_VALUE; };
  api.get_error_string = [](CUresult, const char**) { return CUDA_ERROR_INVALID_VALUE; };
  EXPECT_EQ(driver_error(api, {"cuInit", static_cast<CUresult>(803)}).message,
            "cuInit: error 803 (no description)");
}

TEST(DriverTest, OutcomesTellTheCandidateFromTheDevice) {
  EXPECT_EQ(outcome_of(CUDA_ERROR_OUT_OF_MEMORY), Outcome::out_of_memory);
  EXPECT_EQ(outcome_of(CUDA_ERROR_ILLEGAL_ADDRESS), Outcome::illegal_address);
  EXPECT_EQ(outcome_of(CUDA_ERROR_MISALIGNED_ADDRESS), Outcome::illegal_address);
  EXPECT_EQ(outcome_of(CUDA_ERROR_LAUNCH_FAILED), Outcome::launch_failed);
  EXPECT_EQ(outcome_of(CUDA_ERROR_INVALID_VALUE), Outcome::launch_failed);
  EXPECT_EQ(outcome_of(CUDA_ERROR_LAUNCH_TIMEOUT), Outcome::timed_out);
  EXPECT_EQ(outcome_of(CUDA_ERROR_ECC_UNCORRECTABLE), Outcome::device_lost);
}

TEST(DriverTest, OnlyErrorsThatStickPoisonTheContext) {
  EXPECT_TRUE(poisons_context(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_TRUE(poisons_context(CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_TRUE(poisons_context(CUDA_ERROR_ECC_UNCORRECTABLE));
  EXPECT_FALSE(poisons_context(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(poisons_context(CUDA_ERROR_INVALID_VALUE));
  EXPECT_FALSE(poisons_context(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES));
  EXPECT_FALSE(poisons_context(CUDA_ERROR_INVALID_CLUSTER_SIZE));
}

StreamHandle make_stream(FakeDriver& driver) {
  CUstream stream = nullptr;
  EXPECT_EQ(driver.api().stream_create(&stream, 0), CUDA_SUCCESS);
  return {driver.api(), stream};
}

TEST(DriverHandleTest, DestroysOnceWhoeverHoldsItLast) {
  FakeDriver driver;
  {
    StreamHandle first = make_stream(driver);
    StreamHandle second = std::move(first);
    first = std::move(second);
    EXPECT_EQ(driver.alive.count("stream"), 1U);
    first.reset();
    EXPECT_EQ(driver.alive.count("stream"), 0U);
  }
  EXPECT_EQ(driver.destroyed_twice, 0);
}

TEST(DriverHandleTest, AssignmentDestroysWhatWasHeld) {
  FakeDriver driver;
  StreamHandle handle = make_stream(driver);
  const CUstream second = [&] {
    StreamHandle other = make_stream(driver);
    const CUstream stream = other.get();
    handle = std::move(other);
    return stream;
  }();
  EXPECT_EQ(handle.get(), second);
  EXPECT_EQ(driver.alive.count("stream"), 1U);
}

TEST(DriverHandleTest, AbandonedIsNeverDestroyed) {
  FakeDriver driver;
  {
    make_stream(driver).abandon();
  }
  EXPECT_EQ(driver.alive.count("stream"), 1U);
}

}  // namespace
}  // namespace kernwright
