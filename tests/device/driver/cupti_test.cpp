#include "device/driver/cupti.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_cupti.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST(CuptiTest, SaysWhatHelpsAgainstAnError) {
  const FakeCupti cupti;
  const auto said = [&](int status) { return cupti_error(cupti.api, "cuptiX", status); };
  EXPECT_EQ(said(26).code, ErrorCode::unavailable);
  EXPECT_THAT(said(26).message, HasSubstr("cuptiX: CUPTI_ERROR_HARDWARE_BUSY (26): another"));
  EXPECT_EQ(said(39).code, ErrorCode::unavailable);
  EXPECT_THAT(said(39).message, HasSubstr("runs under ncu or nsys"));
  EXPECT_EQ(said(35).code, ErrorCode::unavailable);
  EXPECT_THAT(said(35).message, HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  EXPECT_EQ(said(15).code, ErrorCode::unavailable);
  EXPECT_THAT(said(15).message, HasSubstr("libnvperf_host.so"));
  EXPECT_EQ(said(1).code, ErrorCode::device);
  EXPECT_THAT(said(1).message, HasSubstr("CUPTI 13.0 does not take"));
  EXPECT_EQ(said(999).code, ErrorCode::device);
}

TEST(CuptiTest, TheDriverSaysWhoMayCount) {
  EXPECT_EQ(counter_access("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n"),
            CounterAccess::administrators);
  EXPECT_EQ(counter_access("RmProfilingAdminOnly: 0\nOther: 1\n"), CounterAccess::everyone);
  EXPECT_EQ(counter_access("Other: 1\n"), CounterAccess::unknown);
  EXPECT_EQ(counter_access(""), CounterAccess::unknown);
}

}  // namespace
}  // namespace kernwright
