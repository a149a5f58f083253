#include <gmock/gmock.h>

#include <csignal>

#include "supervisor/test_host.h"

namespace omni {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InstanceLife : public InstanceTest {};
INSTANTIATE_TEST_SUITE_P(Host, InstanceLife, testing::Bool(), isolation_name);

// ---- Ends

TEST_P(InstanceLife, ReportsTheExitCodeAndTheLastLines) {
  auto instance = host.start(host.shell("echo one; echo two >&2; exit 3"));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_FALSE(report.by_signal);
  EXPECT_EQ(report.status, 3);
  EXPECT_EQ(report.description, "exit code 3");
  EXPECT_THAT(report.last_log_lines, ElementsAre("one", "two"));
  EXPECT_FALSE(instance->alive());
  EXPECT_FALSE(fs::exists(instance->plan().run_dir));
}

TEST_P(InstanceLife, ReportsTheSignal) {
  auto instance = host.start(host.shell("kill -SEGV $$"));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_TRUE(report.by_signal);
  EXPECT_EQ(report.description, "signal 11 (SIGSEGV)");
}

TEST_P(InstanceLife, TellsSeveralWaiters) {
  auto instance = host.start(host.shell("sleep 0.05; exit 4"));
  int told = 0;
  const auto count = [&](std::exception_ptr, ExitReport report) { told += report.status == 4; };
  for (int i = 0; i < 3; ++i) asio::co_spawn(host.loop, instance->wait_exit(), count);
  EXPECT_TRUE(host.run_until([&] { return told == 3; }));
}

TEST_P(InstanceLife, CommandThatDoesNotExistFailsAtTheStart) {
  auto started = host.try_start(host.plan({"/nonexistent/engine", "--flag"}));
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::load_failed);
  EXPECT_THAT(started.error().message,
              HasSubstr("model \"fake\": cannot run /nonexistent/engine: No such file"));
}

TEST_P(InstanceLife, WorkingDirectoryThatDoesNotExistFailsAtTheStart) {
  LaunchPlan plan = host.shell("true");
  plan.working_directory = "/nonexistent/folder";
  auto started = host.try_start(std::move(plan));
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("cannot enter /nonexistent/folder"));
}

TEST_P(InstanceLife, FailedStartLeavesNoRunFolder) {
  LaunchPlan plan = host.plan({"/nonexistent/engine"});
  const fs::path run_dir = plan.run_dir;
  EXPECT_FALSE(host.try_start(std::move(plan)).ok());
  EXPECT_FALSE(fs::exists(run_dir));
}

TEST_P(InstanceLife, SocketPathThatIsTooLongIsRefused) {
  LaunchPlan plan = host.shell("true");
  plan.endpoint.path = (plan.run_dir / std::string(110, 'x')).string();
  auto started = host.try_start(std::move(plan));
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::invalid_config);
}

TEST_P(InstanceLife, ManyStartAndStopAtOnce) {
  constexpr int kCount = 16;
  std::vector<std::shared_ptr<Instance>> running;
  const auto keep = [&](std::exception_ptr, std::optional<std::shared_ptr<Instance>> instance) {
    running.push_back(instance.value_or(nullptr));
  };
  const auto start =
      [&](LaunchPlan plan) -> asio::awaitable<std::optional<std::shared_ptr<Instance>>> {
    auto started =
        co_await Instance::start(host.loop, host.workers, *host.spawner, std::move(plan));
    if (!started.ok()) co_return std::nullopt;
    co_return *started;
  };
  for (int i = 0; i < kCount; ++i) {
    asio::co_spawn(host.loop, start(host.shell("exec sleep 600")), keep);
  }
  ASSERT_TRUE(host.run_until([&] { return running.size() == kCount; }));
  int stopped = 0;
  const auto count = [&](std::exception_ptr, ExitReport report) { stopped += report.gone; };
  for (const auto& instance : running) {
    ASSERT_NE(instance, nullptr);
    asio::co_spawn(host.loop, instance->stop(), count);
  }
  EXPECT_TRUE(host.run_until([&] { return stopped == kCount; }));
}

// ---- Stop

TEST_P(InstanceLife, StopsAtTermAtOnce) {
  auto instance =
      host.start(host.shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"));
  ASSERT_TRUE(host.log_has(instance->plan(), "up"));
  const TimePoint begin = Clock::now();
  const ExitReport report = host.stop(instance);
  EXPECT_EQ(report.description, "exit code 0");
  EXPECT_THAT(report.last_log_lines, ElementsAre("up", "bye"));
  EXPECT_LT(Clock::now() - begin, instance->plan().stop_grace + 1s);
  EXPECT_FALSE(fs::exists(instance->plan().run_dir));
}

TEST_P(InstanceLife, EngineThatWantsASecondTermGetsItAtHalfTheGrace) {
  LaunchPlan plan = host.shell(
      "trap 'n=$((n+1)); echo term $n; [ $n = 2 ] && exit 5' TERM; echo up; while :; do sleep "
      "0.01; done");
  plan.stop_grace = 400ms;
  auto instance = host.start(std::move(plan));
  ASSERT_TRUE(host.log_has(instance->plan(), "up"));
  EXPECT_EQ(host.stop(instance).description, "exit code 5");
}

TEST_P(InstanceLife, EngineThatIgnoresTermIsKilledAtTheEndOfItsGrace) {
  auto instance = host.start(host.shell("trap '' TERM; echo up; while :; do sleep 0.01; done"));
  ASSERT_TRUE(host.log_has(instance->plan(), "up"));
  const TimePoint begin = Clock::now();
  const ExitReport report = host.stop(instance);
  EXPECT_EQ(report.description, "signal 9 (SIGKILL)");
  EXPECT_TRUE(report.gone);
  EXPECT_GE(Clock::now() - begin, instance->plan().stop_grace);
  EXPECT_LT(Clock::now() - begin, instance->plan().stop_grace + 5s);
}

TEST_P(InstanceLife, EngineThatForksTwiceCallsSetsidAndIgnoresTermIsGoneWithinTheDeadline) {
  auto instance = host.start(host.engine({"--fork-setsid", "--ignore-term"}));
  ASSERT_TRUE(host.log_has(instance->plan(), "holds on"));
  const std::vector<Fd> tree = host.handles_of(instance);
  ASSERT_GE(tree.size(), 2u);
  const TimePoint begin = Clock::now();
  EXPECT_TRUE(host.stop(instance).gone);
  EXPECT_LT(Clock::now() - begin, instance->plan().stop_grace + 5s);
  for (const Fd& process : tree) EXPECT_TRUE(has_ended(process));
}

TEST_P(InstanceLife, WhatTheMainProcessLeavesBehindEndsWithIt) {
  auto instance = host.start(host.shell("setsid sleep 600 & echo $!; exit 0"));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_EQ(report.description, "exit code 0");
  EXPECT_TRUE(report.gone);
}

TEST_P(InstanceLife, SeveralMayStopItAtOnce) {
  auto instance = host.start(host.shell("trap '' TERM; while :; do sleep 0.01; done"));
  int stopped = 0;
  const auto count = [&](std::exception_ptr, ExitReport report) { stopped += report.gone; };
  for (int i = 0; i < 3; ++i) asio::co_spawn(host.loop, instance->stop(), count);
  EXPECT_TRUE(host.run_until([&] { return stopped == 3; }));
}

TEST_P(InstanceLife, StopOfOneThatHasEndedReturnsItsReport) {
  auto instance = host.start(host.shell("exit 7"));
  host.wait_exit(instance);
  EXPECT_EQ(host.stop(instance).description, "exit code 7");
}

TEST_P(InstanceLife, StopGoesOnWhenItsCallerIsCancelled) {
  auto instance = host.start(host.shell("trap '' TERM; while :; do sleep 0.01; done"));
  const std::vector<Fd> tree = host.handles_of(instance);
  asio::cancellation_signal cancel;
  bool returned = false;
  asio::co_spawn(host.loop, instance->stop(),
                 asio::bind_cancellation_slot(
                     cancel.slot(), [&](std::exception_ptr, ExitReport) { returned = true; }));
  host.loop.restart();
  host.loop.poll();
  cancel.emit(asio::cancellation_type::terminal);
  EXPECT_TRUE(host.run_until([&] { return returned; }));
  for (const Fd& process : tree) EXPECT_TRUE(has_ended(process));
}

TEST_P(InstanceLife, TermToTheShimReachesTheModel) {
  auto instance = host.start(
      host.shell("trap 'echo got it; exit 6' TERM; echo up; while :; do sleep 0.01; done"));
  ASSERT_TRUE(host.log_has(instance->plan(), "up"));
  ::kill(host.shim_of(instance), SIGTERM);
  EXPECT_EQ(host.wait_exit(instance).description, "exit code 6");
}

// ---- Loss of a link in the chain daemon, spawner, shim, model

TEST_P(InstanceLife, KilledShimTakesTheWholeTreeAlong) {
  auto instance = host.start(host.engine({"--fork-setsid", "--ignore-term"}));
  ASSERT_TRUE(host.log_has(instance->plan(), "holds on"));
  const std::vector<Fd> tree = host.handles_of(instance);
  ::kill(host.shim_of(instance), SIGKILL);
  const ExitReport report = host.wait_exit(instance);
  EXPECT_THAT(report.description, HasSubstr("SIGKILL"));
  for (const Fd& process : tree) EXPECT_TRUE(has_ended(process));
  EXPECT_FALSE(instance->alive());
}

TEST_P(InstanceLife, DaemonThatGoesTakesTheTreeAlongAndFindsTheRecord) {
  auto instance = host.start(host.engine({"--fork-setsid", "--ignore-term"}));
  ASSERT_TRUE(host.log_has(instance->plan(), "holds on"));
  const fs::path record = instance->plan().run_dir / "exit.json";
  const std::vector<Fd> tree = host.handles_of(instance);
  instance.reset();  // closes the control socket, as the death of the daemon does
  for (const Fd& process : tree) EXPECT_TRUE(has_ended(process, 10s));
  EXPECT_TRUE(host.run_until([&] { return fs::exists(record); }));
  EXPECT_THAT(read_text(record), HasSubstr("\"signal\":9"));
}

TEST_P(InstanceLife, EndOfTheSpawnerIsNotTheEndOfTheInstance) {
  auto instance = host.start(host.shell("echo up; while :; do sleep 0.01; done"));
  ASSERT_TRUE(host.log_has(instance->plan(), "up"));
  ::kill(host.spawner->pid(), SIGKILL);
  EXPECT_TRUE(instance->alive());
  const std::vector<Fd> tree = host.handles_of(instance);
  EXPECT_FALSE(tree.empty());
  EXPECT_TRUE(host.stop(instance).gone);
  for (const Fd& process : tree) EXPECT_TRUE(has_ended(process));
}

TEST_P(InstanceLife, StartWithoutASpawnerIsAnError) {
  const Fd spawner = handle_of(host.spawner->pid());
  ::kill(host.spawner->pid(), SIGKILL);
  ASSERT_TRUE(has_ended(spawner, 10s));
  auto started = host.try_start(host.shell("true"));
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("the spawner has ended"));
}

// ---- Usage

TEST_P(InstanceLife, UsageIsTheSumOverTheTree) {
  auto instance =
      host.start(host.python("import os, time\nif os.fork(): pass\nblock = bytearray(40 << "
                             "20)\nblock[::4096] = b'x' * (len(block) // 4096)\n"
                             "print('filled', flush=True)\ntime.sleep(600)"));
  ASSERT_TRUE(host.run_until([&] {
    const std::string log = read_text(instance->plan().log_file);
    return std::count(log.begin(), log.end(), '\n') == 2;
  }));
  const InstanceUsage usage = host.run(instance->usage(true));
  EXPECT_EQ(usage.processes, 2u);
  EXPECT_GT(usage.high_water, 80_MiB);
  EXPECT_LT(usage.high_water, 160_MiB);
  EXPECT_GT(usage.pss, 80_MiB);
  EXPECT_LE(usage.pss, usage.high_water);
  EXPECT_GT(usage.main_pid, 0);
  host.stop(instance);
}

TEST_P(InstanceLife, ShimStaysBelowOneMebibyte) {
  auto instance = host.start(host.shell("echo up; sleep 600"));
  ASSERT_TRUE(host.log_has(instance->plan(), "up"));
  const std::string status =
      read_text("/proc/" + std::to_string(host.shim_of(instance)) + "/status");
  const std::size_t at = status.find("VmRSS:");
  ASSERT_NE(at, std::string::npos);
  EXPECT_LT(std::atoi(status.c_str() + at + 6), 1024);
  host.stop(instance);
}

}  // namespace
}  // namespace omni
