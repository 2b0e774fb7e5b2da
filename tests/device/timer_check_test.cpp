#include "device/timer_check.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(TimerCheckTest, CountsWhatIsOffByMoreThanTwoPercentAndTwoMicroseconds) {
  TimerCheck check;
  check.add(1000, 1021.9);
  check.add(299, 900);  // too short to tell
  EXPECT_EQ(check.samples, 1);
  EXPECT_EQ(check.disagreed, 0);
  check.add(1000, 1022.1);
  check.add(1000, 900);
  check.add(1000, 1050);
  EXPECT_EQ(check.disagreed, 3);
  EXPECT_EQ(check.event_us, 1000);
  EXPECT_EQ(check.timer_us, 900);
}

}  // namespace
}  // namespace kernwright
