#include "supervisor/instance.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>

#include "supervisor/test_host.h"

namespace omni {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Every promise holds with a pid namespace and, where the host allows none, without.
class InstanceLife : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !host.spawner->pid_namespaces()) {
      GTEST_SKIP() << "this host allows no pid namespaces to this user";
    }
  }
  TestHost host{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Host, InstanceLife, testing::Bool(), [](const auto& info) {
  return info.param ? "WithNamespaces" : "WithoutNamespaces";
});

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

// ---- What a model gets

TEST_P(InstanceLife, EnvironmentIsWhatThePlanSays) {
  ::setenv("OMNI_TEST_SECRET", "leaks", 1);
  LaunchPlan plan = host.plan({"env"});
  plan.env["GREETING"] = "two words";
  auto instance = host.start(std::move(plan));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_THAT(report.last_log_lines, ElementsAre("GREETING=two words", "PATH=/usr/bin:/bin"));
}

TEST_P(InstanceLife, NoDescriptorLeaksIntoTheModel) {
  auto instance = host.start(
      host.python("import os\nfor fd in sorted(os.listdir('/proc/self/fd')):\n"
                  "  try: print(fd, os.readlink('/proc/self/fd/' + fd))\n  except OSError: pass"));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_THAT(report.last_log_lines,
              ElementsAre("0 /dev/null", HasSubstr("1 pipe:"), HasSubstr("2 pipe:")));
}

TEST_P(InstanceLife, SignalsUmaskFolderAndPrivilegesAreTheUsual) {
  LaunchPlan plan = host.shell(
      "pwd; umask; grep -E '^(SigBlk|SigIgn|NoNewPrivs)' /proc/self/status; cat "
      "/proc/self/oom_score_adj");
  plan.working_directory = "/usr";
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines,
              ElementsAre("/usr", "0022", "SigBlk: 0000000000000000", "SigIgn: 0000000000000000",
                          "NoNewPrivs: 1", "500"));
}

TEST_P(InstanceLife, OrphansAreReaped) {
  auto instance = host.start(host.shell(
      "for i in 1 2 3 4 5; do (setsid sh -c 'exit 0' &); done; sleep 0.2; "
      "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; echo counted; sleep 600"));
  EXPECT_TRUE(host.log_has(instance->plan(), "counted"));
  for (const pid_t pid : descendants(host.shim_of(instance))) {
    EXPECT_THAT(read_text("/proc/" + std::to_string(pid) + "/status"), Not(HasSubstr("(zombie)")));
  }
  host.stop(instance);
}

TEST_P(InstanceLife, StaleFilesOfTheRunFolderAreGone) {
  LaunchPlan plan = host.shell("ls -A");
  plan.working_directory = plan.run_dir;
  fs::create_directories(plan.run_dir);
  std::ofstream(plan.run_dir / "engine.sock") << "stale";
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines, testing::IsEmpty());
}

// ---- The log

TEST_P(InstanceLife, FloodedLogIsRotatedAndBounded) {
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

TEST_P(InstanceLife, FloodDoesNotDelayAStop) {
  auto instance =
      host.start(host.shell("trap 'exit 0' TERM; echo up; yes & while :; do sleep 0.01; done"));
  ASSERT_TRUE(
      host.run_until([&] { return fs::exists(instance->plan().log_file.string() + ".1"); }));
  EXPECT_EQ(host.stop(instance).description, "exit code 0");
}

TEST_P(InstanceLife, FullDiskDoesNotStopTheModel) {
  LaunchPlan plan = host.shell("head -c 3000000 /dev/zero; exit 8");
  plan.log_file = "/dev/full";
  auto instance = host.start(std::move(plan));
  EXPECT_EQ(host.wait_exit(instance).description, "exit code 8");
}

TEST_P(InstanceLife, LinesOfAnEarlierInstanceAreNotQuoted) {
  const LaunchPlan plan = host.shell("echo first");
  host.wait_exit(host.start(plan));
  LaunchPlan again = plan;
  again.argv.back() = "echo second";
  auto instance = host.start(std::move(again));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines, ElementsAre("second"));
  EXPECT_EQ(read_text(plan.log_file), "first\nsecond\n");
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

// ---- Users and reach, as root

class InstanceUser : public InstanceLife {
 protected:
  static constexpr uid_t kUid = 700'123;
  void SetUp() override {
    InstanceLife::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a model a user of its own";
  }
};
INSTANTIATE_TEST_SUITE_P(Host, InstanceUser, testing::Bool(), [](const auto& info) {
  return info.param ? "WithNamespaces" : "WithoutNamespaces";
});

TEST_P(InstanceUser, RunsAsItsUserWithoutGroupsAndCapabilities) {
  LaunchPlan plan = host.shell(
      "id -u; id -G; grep -E '^Cap(Prm|Eff)' /proc/self/status; touch \"$RUN/file\" && stat -c "
      "%u:%a \"$RUN\"");
  plan.env["RUN"] = plan.run_dir.string();
  plan.uid = kUid;
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines,
              ElementsAre("700123", "700123", "CapPrm: 0000000000000000",
                          "CapEff: 0000000000000000", "700123:700"));
}

TEST_P(InstanceUser, CanBeStopped) {
  LaunchPlan plan = host.engine({"--fork-setsid", "--ignore-term"});
  plan.uid = kUid;
  auto instance = host.start(std::move(plan));
  ASSERT_TRUE(host.log_has(instance->plan(), "holds on"));
  const std::vector<Fd> tree = host.handles_of(instance);
  EXPECT_TRUE(host.stop(instance).gone);
  for (const Fd& process : tree) EXPECT_TRUE(has_ended(process));
}

// A closed folder as /root is one: 0700 of root, with what the model needs somewhere below.
class InstanceReach : public InstanceUser {
 protected:
  void SetUp() override {
    InstanceUser::SetUp();
    if (IsSkipped()) return;
    closed = host.folder / "closed";
    fs::create_directories(closed / "repo/models/m");
    fs::create_directories(closed / "repo/secret");
    fs::create_directories(closed / "repo/cache");
    std::ofstream(closed / "repo/models/m/weights") << "weights\n";
    std::ofstream(closed / "repo/secret/key") << "key\n";
    fs::permissions(closed, fs::perms::owner_all);
    ::chown((closed / "repo/cache").c_str(), kUid, kUid);
  }
  LaunchPlan script(const std::string& text) {
    LaunchPlan plan = host.shell(text);
    plan.uid = kUid;
    plan.run_dir = closed / "run/i/1";
    plan.endpoint.path = (plan.run_dir / "engine.sock").string();
    plan.log_file = closed / "logs/m.log";
    plan.env["CLOSED"] = closed.string();
    plan.reach = {{.path = closed / "repo/cache", .writable = true},
                  {.path = closed / "repo/models/m"}};
    return plan;
  }
  fs::path closed;
};
INSTANTIATE_TEST_SUITE_P(Host, InstanceReach, testing::Bool(), [](const auto& info) {
  return info.param ? "WithNamespaces" : "WithoutNamespaces";
});

TEST_P(InstanceReach, OpensJustThePathsBelowAClosedFolder) {
  if (!GetParam()) GTEST_SKIP() << "needs a mount namespace";
  LaunchPlan plan = script(
      "cat repo/models/m/weights; echo new > repo/cache/file && echo cached; "
      "echo x 2>/dev/null > repo/models/m/file || echo read-only; ls $CLOSED/repo; ls -A $CLOSED; "
      "ls -A $CLOSED/run/i");
  plan.working_directory = closed;
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines,
              ElementsAre("weights", "cached", HasSubstr("read-only"), "cache", "models", "repo",
                          "run", "1"));
  EXPECT_EQ(read_text(closed / "repo/cache/file"), "new\n");
}

TEST_P(InstanceReach, SingleFilesAndNestedPathsWork) {
  if (!GetParam()) GTEST_SKIP() << "needs a mount namespace";
  LaunchPlan plan = script("cat $CLOSED/repo/secret/key; echo w > $CLOSED/repo/cache/f && echo ok");
  plan.reach = {{.path = closed / "repo/cache", .writable = true},
                {.path = closed / "repo/secret/key"},
                {.path = closed / "repo"}};
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines, ElementsAre("key", "ok"));
}

TEST_P(InstanceReach, LinkIntoAClosedFolderIsFollowed) {
  if (!GetParam()) GTEST_SKIP() << "needs a mount namespace";
  fs::create_directory_symlink(closed / "repo", host.folder / "link");
  LaunchPlan plan = script("cat $LINK/models/m/weights");
  plan.env["LINK"] = (host.folder / "link").string();
  plan.reach = {{.path = host.folder / "link/models/m"}};
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines, ElementsAre("weights"));
}

TEST_P(InstanceReach, PathThatStaysClosedFailsTheStartByName) {
  LaunchPlan plan = script("true");
  fs::permissions(closed / "repo/models/m", fs::perms::owner_all);
  plan.reach = {{.path = closed / "repo/models/m"}};
  auto started = host.try_start(std::move(plan));
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message,
              AllOf(HasSubstr("reach"), HasSubstr("models/m"), HasSubstr("Permission denied")));
}

TEST_P(InstanceReach, WithoutAMountNamespaceTheStartNamesWhatIsClosed) {
  if (GetParam()) GTEST_SKIP() << "for hosts without";
  auto started = host.try_start(script("true"));
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("let the model's user reach"));
}

TEST_P(InstanceReach, LogIsRotatedOutOfTheModelsSight) {
  if (!GetParam()) GTEST_SKIP() << "needs a mount namespace";
  auto instance = host.start(script("head -c 11000000 /dev/zero; echo end; sleep 600"));
  const fs::path log = instance->plan().log_file;
  EXPECT_TRUE(host.run_until([&] { return fs::exists(log.string() + ".1"); }));
  host.stop(instance);
}

}  // namespace
}  // namespace omni
