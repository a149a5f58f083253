#include "scheduler/reuse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace omni {
namespace {

using namespace std::chrono_literals;

ReuseRecord record(std::initializer_list<Duration> gaps, int times = 10) {
  ReuseRecord record;
  for (int i = 0; i < times; ++i) {
    for (Duration gap : gaps) record.add_gap(gap);
  }
  return record;
}

TEST(Reuse, AModelThatIsNotKnownIsExpectedLaterTheLongerItIsIdle) {
  const ReuseRecord unknown;
  double before = std::numeric_limits<double>::infinity();
  for (Duration idle : {Duration(1s), Duration(10s), Duration(5min), Duration(1h), Duration(72h)}) {
    EXPECT_LT(unknown.rate(idle), before);
    EXPECT_GT(unknown.rate(idle), 0);
    before = unknown.rate(idle);
  }
}

TEST(Reuse, AFrequentModelIsExpectedSoonerThanARareOne) {
  EXPECT_GT(record({5s}).rate(1s), 5 * record({2min}).rate(1s));
}

TEST(Reuse, TheRateIsAboutOneOverTheGap) {
  const double rate = record({8s}, 100).rate(1s);
  EXPECT_GT(rate, 1.0 / 16);
  EXPECT_LT(rate, 1.0 / 4);
}

TEST(Reuse, AfterABurstLittleIsExpectedUntilTheNextIsDue) {
  // Bursts of requests 2 s apart, an hour between bursts.
  const ReuseRecord bursts = record({2s, 2s, 2s, 2s, 2s, 3600s});
  EXPECT_GT(bursts.rate(1s), 50 * bursts.rate(30s));
  EXPECT_GT(bursts.rate(3500s), bursts.rate(30s));
}

TEST(Reuse, AnIdleFrequentModelLosesToARegularOneThatIsDue) {
  EXPECT_LT(record({2s}, 30).rate(10min), record({11min}, 5).rate(10min));
}

TEST(Reuse, ManyShortGapsDoNotWearAwayTheLongOnes) {
  ReuseRecord record;
  for (int i = 0; i < 5; ++i) record.add_gap(10min);
  const double before = record.rate(9min);
  for (int i = 0; i < 10000; ++i) record.add_gap(10ms);
  EXPECT_EQ(record.rate(9min), before);
}

TEST(Reuse, WhatChangesIsLearnedAnew) {
  ReuseRecord changed = record({4s}, 100);
  for (int i = 0; i < 200; ++i) changed.add_gap(5min);
  EXPECT_LT(changed.rate(1s), 3 * record({5min}, 200).rate(1s));
}

TEST(Reuse, TakesGapsAndIdleTimesOfAnyLength) {
  ReuseRecord record;
  for (Duration gap : {Duration(-1s), Duration(0s), Duration(1ns), Duration(24h * 365 * 100)}) {
    record.add_gap(gap);
    EXPECT_GE(record.rate(gap), 0);
    EXPECT_TRUE(std::isfinite(record.rate(gap)));
  }
  EXPECT_TRUE(record.plausible());
}

TEST(Reuse, NumbersThatNoCountingGivesAreNotPlausible) {
  for (double number : {-1.0, 1e9, std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity()}) {
    ReuseRecord record;
    record.outlasted[3] = number;
    EXPECT_FALSE(record.plausible()) << number;
  }
}

}  // namespace
}  // namespace omni
