#include "supervisor/load_progress.h"

#include <gtest/gtest.h>

namespace omni {
namespace {

using namespace std::chrono_literals;

// Feeds quiet times of 250 ms in which the engine does `per_step`, and says whether it counts as
// stalled after a minute.
bool stalls(Work per_step) {
  const TimePoint begin{};
  StallWatch watch(60s, begin);
  Work work{.cpu = 1s, .bytes_read = 1 << 20, .log_bytes = 100, .log_inode = 7};
  for (int i = 1; i <= 241; ++i) {
    const Work before = work;
    work.cpu += per_step.cpu;
    work.bytes_read += per_step.bytes_read;
    work.log_bytes += per_step.log_bytes;
    work.log_inode += per_step.log_inode;
    watch.on_quiet(before, work, 250ms, begin + i * 250ms);
  }
  return watch.stalled(begin + 241 * 250ms);
}

TEST(StallWatch, NothingAtAllIsAStall) { EXPECT_TRUE(stalls({})); }

TEST(StallWatch, AnyLogByteCounts) { EXPECT_FALSE(stalls({.log_bytes = 1})); }

TEST(StallWatch, WorkOfATwentiethOfACoreCounts) {
  EXPECT_FALSE(stalls({.cpu = 12'500us}));
  EXPECT_FALSE(stalls({.cpu = 200ms}));
}

TEST(StallWatch, HeartbeatOfAHundredthOfACoreIsNone) { EXPECT_TRUE(stalls({.cpu = 2'500us})); }

TEST(StallWatch, SlowReadsCountAndTricklesDoNot) {
  EXPECT_FALSE(stalls({.bytes_read = 25'000}));
  EXPECT_TRUE(stalls({.bytes_read = 500}));
}

TEST(StallWatch, ReplacedLogCounts) { EXPECT_FALSE(stalls({.log_inode = 1})); }

TEST(StallWatch, ProcessThatEndedCounts) {
  StallWatch watch(60s, TimePoint{});
  watch.on_quiet({.cpu = 2s}, {.cpu = 1s}, 250ms, TimePoint{} + 50s);
  EXPECT_FALSE(watch.stalled(TimePoint{} + 109s));
  EXPECT_TRUE(watch.stalled(TimePoint{} + 110s));
}

TEST(StallWatch, CutsOnlyAfterTheWholeLimit) {
  const StallWatch watch(60s, TimePoint{});
  EXPECT_FALSE(watch.stalled(TimePoint{} + 59s));
  EXPECT_TRUE(watch.stalled(TimePoint{} + 60s));
}

}  // namespace
}  // namespace omni
