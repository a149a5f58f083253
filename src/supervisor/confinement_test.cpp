#include <gmock/gmock.h>

#include "supervisor/test_host.h"

namespace omni {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ModelSurroundings : public InstanceTest {};
INSTANTIATE_TEST_SUITE_P(Host, ModelSurroundings, testing::Bool(), isolation_name);

// ---- What a model gets

TEST_P(ModelSurroundings, EnvironmentIsWhatThePlanSays) {
  ::setenv("OMNI_TEST_SECRET", "leaks", 1);
  LaunchPlan plan = host.plan({"env"});
  plan.env["GREETING"] = "two words";
  auto instance = host.start(std::move(plan));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_THAT(report.last_log_lines, ElementsAre("GREETING=two words", "PATH=/usr/bin:/bin"));
}

TEST_P(ModelSurroundings, NoDescriptorLeaksIntoTheModel) {
  auto instance = host.start(
      host.python("import os\nfor fd in sorted(os.listdir('/proc/self/fd')):\n"
                  "  try: print(fd, os.readlink('/proc/self/fd/' + fd))\n  except OSError: pass"));
  const ExitReport report = host.wait_exit(instance);
  EXPECT_THAT(report.last_log_lines,
              ElementsAre("0 /dev/null", HasSubstr("1 pipe:"), HasSubstr("2 pipe:")));
}

TEST_P(ModelSurroundings, SignalsUmaskFolderAndPrivilegesAreTheUsual) {
  LaunchPlan plan = host.shell(
      "pwd; umask; grep -E '^(SigBlk|SigIgn|NoNewPrivs)' /proc/self/status; cat "
      "/proc/self/oom_score_adj");
  plan.working_directory = "/usr";
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines,
              ElementsAre("/usr", "0022", "SigBlk: 0000000000000000", "SigIgn: 0000000000000000",
                          "NoNewPrivs: 1", "500"));
}

TEST_P(ModelSurroundings, OrphansAreReaped) {
  auto instance = host.start(host.shell(
      "for i in 1 2 3 4 5; do (setsid sh -c 'exit 0' &); done; sleep 0.2; "
      "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; echo counted; sleep 600"));
  EXPECT_TRUE(host.log_has(instance->plan(), "counted"));
  for (const pid_t pid : descendants(host.shim_of(instance))) {
    EXPECT_THAT(read_text("/proc/" + std::to_string(pid) + "/status"), Not(HasSubstr("(zombie)")));
  }
  host.stop(instance);
}

TEST_P(ModelSurroundings, StaleFilesOfTheRunFolderAreGone) {
  LaunchPlan plan = host.shell("ls -A");
  plan.working_directory = plan.run_dir;
  fs::create_directories(plan.run_dir);
  std::ofstream(plan.run_dir / "engine.sock") << "stale";
  auto instance = host.start(std::move(plan));
  EXPECT_THAT(host.wait_exit(instance).last_log_lines, testing::IsEmpty());
}

// ---- Users and reach, as root

class InstanceUser : public InstanceTest {
 protected:
  static constexpr uid_t kUid = 700'123;
  void SetUp() override {
    InstanceTest::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a model a user of its own";
  }
};
INSTANTIATE_TEST_SUITE_P(Host, InstanceUser, testing::Bool(), isolation_name);

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
INSTANTIATE_TEST_SUITE_P(Host, InstanceReach, testing::Bool(), isolation_name);

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
