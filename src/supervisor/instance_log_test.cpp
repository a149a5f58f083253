#include <gmock/gmock.h>

#include "supervisor/test_host.h"

namespace omni {
namespace {

using testing::Contains;
using testing::ElementsAre;

class InstanceLog : public InstanceTest {};
INSTANTIATE_TEST_SUITE_P(Host, InstanceLog, testing::Bool(), isolation_name);

TEST_P(InstanceLog, FloodedLogIsRotatedAndBounded) {
  constexpr std::uint64_t kFile = 10 << 20;
  auto instance = host.start(
      host.shell("head -c 46000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo flood is "
                 "over; sleep 600"));
  const fs::path log = instance->plan().log_file;
  ASSERT_TRUE(host.log_has(instance->plan(), "flood is over"));
  for (const char* suffix : {"", ".1", ".2", ".3"}) {
    const fs::path file = log.string() + suffix;
    ASSERT_TRUE(fs::exists(file)) << file;
    EXPECT_LT(fs::file_size(file), kFile + (1 << 17)) << file;
  }
  EXPECT_FALSE(fs::exists(log.string() + ".4"));
  EXPECT_THAT(host.stop(instance).last_log_lines, Contains("flood is over"));
}

TEST_P(InstanceLog, FloodDoesNotDelayAStop) {
  auto instance =
      host.start(host.shell("trap 'exit 0' TERM; echo up; yes & while :; do sleep 0.01; done"));
  ASSERT_TRUE(
      host.run_until([&] { return fs::exists(instance->plan().log_file.string() + ".1"); }));
  EXPECT_EQ(host.stop(instance).description, "exit code 0");
}

TEST_P(InstanceLog, FullDiskDoesNotStopTheModel) {
  LaunchPlan plan = host.shell("head -c 3000000 /dev/zero; exit 8");
  plan.log_file = "/dev/full";
  auto instance = host.start(std::move(plan));
  EXPECT_EQ(host.wait_exit(instance).description, "exit code 8");
}

TEST_P(InstanceLog, LinesOfAnEarlierInstanceAreNotQuoted) {
  const LaunchPlan plan = host.shell("echo first");
  host.wait_exit(host.start(plan));
  LaunchPlan again = plan;
  again.argv.back() = "echo second";
  auto instance = host.start(std::move(again));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines, ElementsAre("second"));
  EXPECT_EQ(read_text(plan.log_file), "first\nsecond\n");
}

}  // namespace
}  // namespace omni
