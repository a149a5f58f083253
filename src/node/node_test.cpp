#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/files.h"
#include "node/event_log.h"
#include "node/launch.h"
#include "node/learned_store.h"
#include "node/uid_pool.h"

namespace omni::node {
namespace {

using namespace std::chrono_literals;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/omni-node-test-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

ModelSpec command_spec() {
  ModelSpec spec;
  spec.name = "llama";
  spec.dir = "/models/llama";
  spec.command = CommandEngine{
      .command = {"{env_dir}/bin/llama-server", "-m", "{weights.gguf}", "--host", "{socket}",
                  "--cache-ram", "{memory}", "-t", "{threads}", "{literal"},
      .uses_socket = true};
  spec.cpus = 1.5;
  spec.memory = 512_MiB;
  spec.env["DATA"] = "{model_dir}/data";
  return spec;
}

Provisioned provisioned() {
  return {.version = "abc",
          .python = "/state/environments/1/bin/python",
          .env_dir = "/state/environments/1",
          .weights = {{"gguf", "/state/weights/x.gguf"}}};
}

TEST(Launch, FillsPlaceholdersOfCommandAndEnvironment) {
  const NodePaths paths = NodePaths::below("/r");
  const LaunchContext context{.paths = paths, .python_path = "/lib/python", .uid = 700001};
  const auto plan = make_launch_plan(context, command_spec(), provisioned(), InstanceId{7}).value();
  const std::string socket = (paths.run / "i/7/engine.sock").string();
  EXPECT_EQ(plan.argv, (std::vector<std::string>{"/state/environments/1/bin/llama-server", "-m",
                                                 "/state/weights/x.gguf", "--host", socket,
                                                 "--cache-ram", "512", "-t", "2", "{literal"}));
  EXPECT_EQ(plan.endpoint, Endpoint::unix_at(socket));
  EXPECT_EQ(plan.env.at("DATA"), "/models/llama/data");
  EXPECT_EQ(plan.env.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(plan.env.at("ORT_DISABLE_TELEMETRY"), "1");
  EXPECT_FALSE(plan.env.contains("PYTHONPATH"));
  EXPECT_EQ(plan.uid, 700001u);
}

TEST(Launch, NoTwoInstancesThatLiveWriteOneLog) {
  const NodePaths paths = NodePaths::below("/r");
  EXPECT_EQ(log_file(paths, "llama"), paths.logs / "llama.log");
  EXPECT_EQ(log_file(paths, "llama", 1), paths.logs / "llama#2.log");
}

TEST(Launch, GivesEachStartAPortOfItsOwn) {
  ModelSpec spec = command_spec();
  spec.command->command = {"/usr/bin/engine", "--port", "{port}"};
  spec.command->uses_socket = false;
  const NodePaths paths = NodePaths::below("/r");
  const LaunchContext context{.paths = paths, .python_path = "/lib/python", .uid = {}};
  const auto plan = make_launch_plan(context, spec, provisioned(), InstanceId{1}).value();
  EXPECT_NE(plan.endpoint.port, 0);
  EXPECT_EQ(plan.argv.back(), std::to_string(plan.endpoint.port));
}

TEST(Launch, RunsHandlersInTheirEnvironmentWithSettings) {
  ModelSpec spec = command_spec();
  spec.command.reset();
  spec.python = PythonEngine{};
  const NodePaths paths = NodePaths::below("/r");
  const LaunchContext context{.paths = paths, .python_path = "/lib/python", .uid = {}};
  auto plan = make_launch_plan(context, spec, provisioned(), InstanceId{3}).value();
  EXPECT_EQ(plan.argv[0], "/state/environments/1/bin/python");
  const auto settings = boost::json::parse(plan.argv.back()).as_object();
  EXPECT_EQ(settings.at("weights").as_object().at("gguf").as_string(), "/state/weights/x.gguf");
  EXPECT_EQ(settings.at("handler").as_string(), "handler.py");
  EXPECT_EQ(plan.env.at("PYTHONPATH"), "/lib/python");

  Provisioned bare = provisioned();
  bare.env_dir.clear();
  bare.python = "/usr/bin/python3";
  plan = make_launch_plan(context, spec, bare, InstanceId{3}).value();
  EXPECT_EQ(plan.argv[0], "/usr/bin/python3") << "without requirements the interpreter serves";
}

TEST(Launch, LetsAModelReachItsInterpreterAndWhatThatLinksTo) {
  TemporaryFolder folder;
  const auto real = folder.path() / "real/bin/python3.12";
  std::filesystem::create_directories(real.parent_path());
  ASSERT_TRUE(write_file_atomic(real, "", 0755).ok());
  for (const char* bin : {"link/bin", "venv/bin"})
    std::filesystem::create_directories(folder.path() / bin);
  std::filesystem::create_symlink("../../real/bin/python3.12", folder.path() / "link/bin/python3");
  std::filesystem::create_symlink(folder.path() / "link/bin/python3",
                                  folder.path() / "venv/bin/python");
  ModelSpec spec = command_spec();
  spec.command.reset();
  spec.python = PythonEngine{};
  Provisioned ready = provisioned();
  ready.env_dir.clear();
  ready.python = folder.path() / "venv/bin/python";
  const NodePaths paths = NodePaths::below("/r");
  const LaunchContext context{.paths = paths, .python_path = "/lib/python", .uid = 700001};
  auto reached = [&](const std::filesystem::path& path) {
    const auto plan = make_launch_plan(context, spec, ready, InstanceId{3}).value();
    return std::ranges::any_of(plan.reach, [&](const LaunchPlan::Reach& reach) {
      return reach.path == path && !reach.writable;
    });
  };
  EXPECT_TRUE(reached(folder.path() / "venv"));
  EXPECT_TRUE(reached(folder.path() / "link"));
  EXPECT_TRUE(reached(folder.path() / "real"));
  ready.python = "/usr/bin/python3";
  EXPECT_FALSE(reached("/usr")) << "every instance sees it anyway";
}

TEST(UidPool, KeepsEveryModelsUidOverRestarts) {
  TemporaryFolder folder;
  const auto file = folder.path() / "uids.json";
  UidPool first = UidPool::load(file, 700000, 700002).value();
  EXPECT_EQ(first.of("b").value(), 700000u);
  EXPECT_EQ(first.of("a").value(), 700001u);
  UidPool second = UidPool::load(file, 700000, 700002).value();
  EXPECT_EQ(second.of("a").value(), 700001u);
  EXPECT_EQ(second.of("c").value(), 700002u);
  auto none_left = second.of("d");
  ASSERT_FALSE(none_left.ok());
  EXPECT_NE(none_left.error().message.find("uid_range"), std::string::npos);
}

TEST(UidPool, SaysWhichFileIsBroken) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(folder.path() / "uids.json", "{").ok());
  auto pool = UidPool::load(folder.path() / "uids.json", 1, 2);
  ASSERT_FALSE(pool.ok());
  EXPECT_NE(pool.error().message.find("uids.json"), std::string::npos);
}

Learned some_learned() {
  Learned learned{.profile = 92_MiB, .load_time = 1500ms};
  for (const Duration gap : {100ms, 3000ms, 90000ms}) learned.reuse.add_gap(gap);
  return learned;
}

TEST(LearnedStore, KeepsWhatWasLearnedOverRestarts) {
  TemporaryFolder folder;
  const auto file = folder.path() / "learned.json";
  LearnedStore first(file);
  first.set("m", "v1", some_learned());
  const auto text = first.unsaved();
  ASSERT_TRUE(text.has_value());
  EXPECT_TRUE(first.unsaved().has_value()) << "it could not be written";
  first.saved(*text);
  EXPECT_FALSE(first.unsaved().has_value()) << "nothing new to write";
  ASSERT_TRUE(write_file_atomic(file, *text).ok());

  const LearnedStore second(file);
  const auto learned = second.of("m", "v1", true);
  ASSERT_TRUE(learned.has_value());
  EXPECT_EQ(learned->profile, 92_MiB);
  EXPECT_EQ(learned->load_time, 1500ms);
  EXPECT_EQ(learned->reuse, some_learned().reuse);
  EXPECT_FALSE(second.of("n", "v1", true).has_value());
}

TEST(LearnedStore, TheSizeOfAnotherVersionCountsOnlyWhenNoneIsDeclared) {
  LearnedStore store("/nowhere/learned.json");
  store.set("m", "v1", some_learned());
  EXPECT_EQ(store.of("m", "v2", false)->profile, 92_MiB);
  EXPECT_FALSE(store.of("m", "v2", true)->profile.has_value());
  EXPECT_EQ(store.of("m", "v2", true)->load_time, 1500ms);
}

TEST(LearnedStore, DistrustsWhatItFinds) {
  TemporaryFolder folder;
  const auto file = folder.path() / "learned.json";
  for (const char* text :
       {"", "{", "[]", R"({"format": 2, "models": {"m": {"version": "v1"}}})",
        R"({"format": 1, "models": {"m": {"version": 7}}})", R"({"format": 1, "models": []})"}) {
    ASSERT_TRUE(write_file_atomic(file, text).ok());
    EXPECT_FALSE(LearnedStore(file).of("m", "v1", false).has_value()) << text;
  }
  ASSERT_TRUE(write_file_atomic(file, R"({"format": 1, "models": {"m": {"version": "v1",
      "profile_bytes": -5, "load_seconds": 1e300, "gaps_ended": [-1e308], "extra": null}}})")
                  .ok());
  const auto learned = LearnedStore(file).of("m", "v1", false);
  ASSERT_TRUE(learned.has_value());
  EXPECT_FALSE(learned->profile.has_value());
  EXPECT_EQ(learned->load_time, Duration{});
  EXPECT_EQ(learned->reuse, ReuseRecord{});
}

TEST(EventLog, ResumesAfterTheLastSeenAndWakesWaiters) {
  asio::io_context loop;
  EventLog log(loop);
  log.add({{"type", "a"}});
  log.add({{"type", "b"}});
  std::vector<std::string> seen;
  auto follow = [&]() -> asio::awaitable<void> {
    std::uint64_t after = 1;
    for (int round = 0; round < 2; ++round) {
      const auto events = co_await log.wait(after, Clock::now() + 10s);
      for (const auto& event : events) {
        seen.emplace_back(event.at("type").as_string());
        after = event.at("id").to_number<std::uint64_t>();
      }
    }
    const auto none = co_await log.wait(after, Clock::now() + 1ms);
    EXPECT_TRUE(none.empty());
  };
  asio::co_spawn(loop, follow(), asio::detached);
  loop.poll();
  log.add({{"type", "c"}});
  loop.run();
  EXPECT_EQ(seen, (std::vector<std::string>{"b", "c"}));
}

}  // namespace
}  // namespace omni::node
