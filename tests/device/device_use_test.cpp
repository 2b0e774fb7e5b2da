#include "device/device_use.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TEST(DeviceUseTest, WhatLiesBetweenStretchesIsIdle) {
  DeviceUse use;
  use.append({});
  EXPECT_EQ(use.seconds(), 0);
  use.append({10, 11, 1, 0});
  use.append({13, 16, 2, 0.5});
  use.append({});
  use.append({16.25, 17, 0.75, 0});
  EXPECT_EQ(use.seconds(), 7);
  EXPECT_EQ(use.busy_seconds, 3.75);
  EXPECT_EQ(use.idle_seconds(), 3.25);
  EXPECT_EQ(use.longest_idle_seconds, 2);
  use.append({20, 30, 5, 4});
  EXPECT_EQ(use.longest_idle_seconds, 4) << "within the later one";
}

TEST(UseMeterTest, AStretchLastsFromTheFirstWorkToTheWait) {
  UseMeter meter;
  meter.done(1);
  meter.queued(2);
  meter.queued(3);
  meter.done(5);
  meter.done(6);
  meter.queued(9);
  meter.done(10);
  const DeviceUse use = meter.take(20);
  EXPECT_EQ(use.begin_seconds, 2);
  EXPECT_EQ(use.end_seconds, 10);
  EXPECT_EQ(use.busy_seconds, 4);
  EXPECT_EQ(use.longest_idle_seconds, 4);
  EXPECT_EQ(meter.take(21).busy_seconds, 0);
}

TEST(UseMeterTest, WorkThatIsNotDoneIsCountedOnce) {
  UseMeter meter;
  meter.queued(1);
  DeviceUse use = meter.take(3);
  EXPECT_EQ(use.busy_seconds, 2);
  meter.done(4);
  use.append(meter.take(9));
  EXPECT_EQ(use.busy_seconds, 3);
  EXPECT_EQ(use.idle_seconds(), 0);
  EXPECT_EQ(use.end_seconds, 4);
}

}  // namespace
}  // namespace kernwright
