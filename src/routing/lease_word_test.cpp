#include "routing/lease_word.h"

#include <gtest/gtest.h>

namespace omni {
namespace {

using Acquire = LeaseWord::Acquire;

TEST(LeaseWord, IsClosedUntilItIsOpened) {
  LeaseWord word;
  EXPECT_EQ(word.try_acquire(0, 1), Acquire::closed);
  const std::uint32_t generation = word.open();
  EXPECT_EQ(word.try_acquire(generation, 1), Acquire::ok);
  EXPECT_EQ(word.in_flight(), 1u);
}

TEST(LeaseWord, GivesNoMoreLeasesThanPlaces) {
  LeaseWord word;
  const std::uint32_t generation = word.open();
  EXPECT_EQ(word.try_acquire(generation, 2), Acquire::ok);
  EXPECT_EQ(word.try_acquire(generation, 2), Acquire::ok);
  EXPECT_EQ(word.try_acquire(generation, 2), Acquire::full);
  word.release();
  EXPECT_EQ(word.try_acquire(generation, 2), Acquire::ok);
}

TEST(LeaseWord, AStaleRouteGetsNoLeaseOfALaterLife) {
  LeaseWord word;
  const std::uint32_t before = word.open();
  word.close();
  const std::uint32_t after = word.open();
  EXPECT_NE(before, after);
  EXPECT_EQ(word.try_acquire(before, 1), Acquire::stale);
  EXPECT_EQ(word.try_acquire(after, 1), Acquire::ok);
}

TEST(LeaseWord, WaitersGoBeforeTheFastPath) {
  LeaseWord word;
  const std::uint32_t generation = word.open();
  word.set_waiters(true);
  EXPECT_EQ(word.try_acquire(generation, 1), Acquire::waiters);
  EXPECT_EQ(word.try_acquire(generation, 1, true), Acquire::ok);
  EXPECT_TRUE(word.release().waiters);
  word.set_waiters(false);
  EXPECT_EQ(word.try_acquire(generation, 1), Acquire::ok);
  EXPECT_FALSE(word.release().waiters);
}

TEST(LeaseWord, TheLastReleaseAfterACloseReportsTheDrain) {
  LeaseWord word;
  const std::uint32_t generation = word.open();
  word.try_acquire(generation, 2);
  word.try_acquire(generation, 2);
  EXPECT_FALSE(word.close());
  EXPECT_EQ(word.try_acquire(generation, 2), Acquire::closed);
  EXPECT_FALSE(word.release().drained);
  EXPECT_TRUE(word.release().drained);
}

TEST(LeaseWord, CloseOfAnIdleWordIsDrainedAtOnce) {
  LeaseWord word;
  word.open();
  EXPECT_TRUE(word.close());
}

TEST(LeaseWord, LeasesHeldOverAReopenStillCount) {
  LeaseWord word;
  const std::uint32_t first = word.open();
  word.try_acquire(first, 1);
  word.close();
  const std::uint32_t second = word.open();
  EXPECT_EQ(word.in_flight(), 1u);
  EXPECT_EQ(word.try_acquire(second, 1), Acquire::full);
  EXPECT_FALSE(word.release().drained);
  EXPECT_EQ(word.try_acquire(second, 1), Acquire::ok);
}

}  // namespace
}  // namespace omni
