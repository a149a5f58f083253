#include "supervisor/load_progress.h"

#include <gtest/gtest.h>

namespace omni {
namespace {

using namespace std::chrono_literals;

constexpr Work kBefore{.cpu = 1s, .bytes_read = 1 << 20, .log_bytes = 100, .log_inode = 7};

TEST(LoadProgress, AnyLogByteCpuTimeOrReadCounts) {
  Work now = kBefore;
  EXPECT_FALSE(progressed(kBefore, now, 5s, 0));
  now.log_bytes += 1;
  EXPECT_TRUE(progressed(kBefore, now, 5s, 0));
  now = kBefore;
  now.cpu += 500ms;
  EXPECT_TRUE(progressed(kBefore, now, 5s, 0));
  now = kBefore;
  now.bytes_read += 1 << 20;
  EXPECT_TRUE(progressed(kBefore, now, 5s, 0));
}

TEST(LoadProgress, AHeartbeatIsNone) {
  Work now = kBefore;
  now.cpu += 20ms;
  now.bytes_read += 1000;
  EXPECT_FALSE(progressed(kBefore, now, 5s, 0));
}

TEST(LoadProgress, WhatOurOwnProbesCostIsNone) {
  Work now = kBefore;
  now.cpu += 60ms;
  now.bytes_read += 30'000;
  now.log_bytes += 20 * 90;  // an access log
  EXPECT_FALSE(progressed(kBefore, now, 1s, 20));
  EXPECT_TRUE(progressed(kBefore, now, 1s, 0));
}

TEST(LoadProgress, AReplacedLogOrProcessCounts) {
  Work now = kBefore;
  now.log_inode = 8;
  EXPECT_TRUE(progressed(kBefore, now, 1s, 0));
  now = kBefore;
  now.log_bytes = 10;
  EXPECT_TRUE(progressed(kBefore, now, 1s, 0));
}

TEST(StallWatch, CutsOnlyAfterTheWholeLimitWithoutProgress) {
  const TimePoint begin{};
  StallWatch watch(60s, kBefore, begin);
  Work work = kBefore;
  for (int i = 1; i <= 100; ++i) {
    work.log_bytes += 1;
    watch.on_sample(work, begin + i * 5s);
  }
  EXPECT_FALSE(watch.stalled(begin + 500s));
  for (int i = 101; i <= 111; ++i) watch.on_sample(work, begin + i * 5s);
  EXPECT_FALSE(watch.stalled(begin + 559s));
  EXPECT_TRUE(watch.stalled(begin + 560s));
}

}  // namespace
}  // namespace omni
