#include "provision/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>

#include <thread>

#include "base/fd.h"
#include "provision/provision_test_support.h"

namespace omni {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ProcessSpec shell(std::string script) {
  return {.argv = {"/bin/sh", "-c", std::move(script)}, .env = {"PATH=/usr/bin:/bin", "X=y"}};
}

// A killed process is gone a moment after the signal. A zombie that waits for a lazy init counts as
// gone.
bool is_soon_gone(const std::string& pid) {
  for (const TimePoint limit = Clock::now() + 10s; Clock::now() < limit;) {
    auto stat = read_file("/proc/" + pid + "/stat");
    if (!stat.ok() || stat->find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

class Process : public LoopTest {
 protected:
  Result<ExitStatus> run(ProcessSpec spec, Duration limit = 1min) {
    lines_.clear();
    LineSink sink = [this](std::string_view line) { lines_.emplace_back(line); };
    return await(run_process(std::move(spec), limit, std::move(sink)));
  }

  std::vector<std::string> lines_;
};

TEST_F(Process, HandsOnEveryLineOfOutputAndErrors) {
  auto exit = run(shell("echo one; echo two >&2; printf three"));
  ASSERT_TRUE(exit.ok()) << exit.error().message;
  EXPECT_TRUE(exit->success());
  EXPECT_THAT(lines_, ElementsAre("one", "two", "three"));
}

TEST_F(Process, SeesOnlyTheGivenEnvironmentAndNoInput) {
  ASSERT_TRUE(run(shell("env | sort | grep -v -e ^PWD -e ^_ -e ^SHLVL -e ^OLDPWD; cat; pwd")).ok());
  EXPECT_THAT(lines_, ElementsAre("PATH=/usr/bin:/bin", "X=y", "/"));
}

TEST_F(Process, ReadsItsInputWhole) {
  ProcessSpec spec = shell("cat; wc -c < /proc/self/fd/0");
  spec.input = std::string(100'000, 'x') + "\nsecret\n";
  ASSERT_TRUE(run(std::move(spec)).ok());
  EXPECT_EQ(lines_.at(lines_.size() - 2), "secret");
  EXPECT_EQ(lines_.back(), "100008");
}

TEST_F(Process, TellsExitCodesAndSignals) {
  EXPECT_EQ(to_string(run(shell("exit 3")).value()), "exit code 3");
  EXPECT_EQ(to_string(run(shell("kill -TERM $$")).value()), "signal 15");
}

TEST_F(Process, AMissingProgramIsAnError) {
  auto exit = run({.argv = {"/no/such/program"}});
  ASSERT_FALSE(exit.ok());
  EXPECT_THAT(exit.error().message, HasSubstr("cannot run /no/such/program: No such file"));
}

TEST_F(Process, CutsEndlessLines) {
  ASSERT_TRUE(run(shell("head -c 10000 /dev/zero | tr '\\0' x")).ok());
  ASSERT_EQ(lines_.size(), 3U);
  EXPECT_EQ(lines_[0].size(), 4096U);
  EXPECT_EQ(lines_[2].size(), 10000U - 2 * 4096U);
}

TEST_F(Process, IsKilledAfterItsLimit) {
  auto exit = run(shell("echo $$; sleep 1000"), 50ms);
  ASSERT_FALSE(exit.ok());
  EXPECT_THAT(exit.error().message, HasSubstr("did not end within 50ms"));
  EXPECT_TRUE(is_soon_gone(lines_.at(0)));
}

TEST_F(Process, TakesGrandchildrenWithIt) {
  auto exit = run(shell("sleep 1000 & echo $!"));  // it would hold the output open
  ASSERT_TRUE(exit.ok()) << exit.error().message;
  EXPECT_TRUE(exit->success());
  EXPECT_TRUE(is_soon_gone(lines_.at(0)));
}

TEST_F(Process, IsKilledWhenTheCallIsCancelled) {
  std::vector<std::string> pids;
  LineSink cancel_when_up = [&](std::string_view line) {
    pids.emplace_back(line);
    if (pids.size() == 2) asio::post(loop_, [this] { tasks_.cancel(); });
  };
  std::optional<Result<ExitStatus>> exit;
  start(run_process(shell("trap '' TERM; sleep 1000 & echo $$; echo $!; wait"), 1min,
                    std::move(cancel_when_up)),
        exit);
  run_until_idle();
  EXPECT_FALSE(exit.has_value()) << "a cancelled call ends by operation_aborted";
  EXPECT_EQ(tasks_.size(), 0U);
  ASSERT_EQ(pids.size(), 2U);
  for (const std::string& pid : pids) EXPECT_TRUE(is_soon_gone(pid)) << pid;
}

TEST_F(Process, HoldsAnInheritedLock) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "lock";
  Fd ours(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::flock(ours.get(), LOCK_EX), 0);
  ProcessSpec spec = shell("readlink /proc/self/fd/3; flock -n " + file + " true || echo locked");
  spec.inherited_fd = ours.get();
  ASSERT_TRUE(run(std::move(spec)).ok());
  EXPECT_THAT(lines_, ElementsAre(file, "locked"));
}

}  // namespace
}  // namespace omni
