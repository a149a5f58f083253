#include "config/node_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_test_support.h"

namespace omni {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Node : public ::testing::Test {
 protected:
  Result<NodeConfig> load(std::string_view toml) {
    return load_node_config(folder_.write("omni.toml", toml), true);
  }
  std::string error_of(std::string_view toml) {
    auto config = load(toml);
    return config.ok() ? "no error" : config.error().message;
  }

  TemporaryFolder folder_;
};

TEST_F(Node, AMissingFileIsTheDefaultOnlyWhereAllowed) {
  auto config = load_node_config(folder_.path() / "omni.toml", false);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->listen, ElementsAre(Listen{"127.0.0.1", 8484}, Listen{"::1", 8484}));
  EXPECT_THAT(config->models, ElementsAre(folder_.path() / "models"));
  EXPECT_GT(config->host_memory, 64_MiB);
  EXPECT_FALSE(load_node_config(folder_.path() / "omni.toml", true).ok());
}

TEST_F(Node, ReadsEveryKey) {
  std::filesystem::create_directory(folder_.path() / "mine");
  auto config = load(R"(
listen = ["127.0.0.2:0", "[::1]:9000"]
cors_origins = ["http://localhost:3000", "https://app.example.org"]
io_threads = 2
models = ["mine", "/tmp"]
uid_range = [200000, 200099]
[device.host]
memory = "32MiB"
[limits]
queue_per_model = 5
queue_total = 6
queue_timeout = "1s"
request_timeout = "2s"
header_timeout = "3s"
idle_timeout = "4s"
shutdown_timeout = "5s"
json_body = "2MiB"
file_body = "3MiB"
body_memory = "4MiB"
)");
  ASSERT_TRUE(config.ok()) << config.error().message;
  NodeConfig expected;
  expected.listen = {{"127.0.0.2", 0}, {"::1", 9000}};
  expected.cors_origins = {"http://localhost:3000", "https://app.example.org"};
  expected.io_threads = 2;
  expected.models = {folder_.path() / "mine", "/tmp"};
  expected.uid_first = 200000;
  expected.uid_last = 200099;
  expected.host_memory = 32_MiB;
  expected.queue_per_model = 5;
  expected.queue_total = 6;
  expected.queue_timeout = 1s;
  expected.request_timeout = 2s;
  expected.header_timeout = 3s;
  expected.idle_timeout = 4s;
  expected.shutdown_timeout = 5s;
  expected.json_body = 2_MiB;
  expected.file_body = 3_MiB;
  expected.body_memory = 4_MiB;
  EXPECT_EQ(*config, expected);
}

TEST_F(Node, RefusesAddressesOthersCanReach) {
  for (const char* address : {"0.0.0.0:8484", "192.168.1.2:80", "[::]:8484", "[fe80::1]:80"}) {
    EXPECT_THAT(error_of(fmt::format("listen = [\"{}\"]\n", address)),
                HasSubstr("can be reached from other machines"));
    EXPECT_TRUE(load(fmt::format("listen = [\"{}\"]\npublic_without_keys = true\n", address)).ok());
  }
}

TEST_F(Node, ListensBeyondLoopbackWithKeys) {
  const std::string digest(64, 'A');
  const std::string keys = fmt::format("[[keys]]\nname = \"alice\"\nsha256 = \"{}\"\n", digest);
  auto config = load("listen = [\"0.0.0.0:8484\"]\n" + keys);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->keys, (std::vector<ApiKey>{{"alice", std::string(64, 'a')}}));
  EXPECT_THAT(error_of(keys + keys), HasSubstr("keys[1].name: \"alice\" is given twice"));
  EXPECT_THAT(error_of(keys + keys), HasSubstr("keys[1].sha256: is given twice"));
  EXPECT_THAT(error_of("[[keys]]\nname = \"a b\"\nsha256 = \"secret\"\n"),
              HasSubstr("`omni key` prints"));
  EXPECT_THAT(error_of("[[keys]]\nname = \"a\"\n"), HasSubstr("keys[0].sha256: is missing"));
}

TEST_F(Node, RefusesWhatIsNoAddress) {
  for (const char* address : {"localhost:8484", "8484", "127.0.0.1", "127.0.0.1:", "::1:8484",
                              "127.0.0.1:70000", "127.0.0.1:80x", "[127.0.0.1]:80", ""}) {
    EXPECT_THAT(error_of(fmt::format("listen = [\"{}\"]\n", address)), HasSubstr(":1: listen: "));
  }
  EXPECT_THAT(error_of("listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]\n"), HasSubstr("given twice"));
}

TEST_F(Node, RefusesWhatIsNoOrigin) {
  for (const char* origin : {"*", "example.org", "http://", "http://a/b", "null"}) {
    EXPECT_THAT(error_of(fmt::format("cors_origins = [\"{}\"]\n", origin)),
                HasSubstr("is no origin"));
  }
}

TEST_F(Node, SuggestsKeysAndTables) {
  EXPECT_THAT(error_of("[device.host]\nmemmory = 1\n"),
              HasSubstr("omni.toml:2: device.host.memmory: unknown key: did you mean memory?"));
  EXPECT_THAT(error_of("queue_timeout = \"1s\"\n"), HasSubstr("belongs in [limits]"));
  EXPECT_THAT(error_of("[limits]\nmemory = \"1GiB\"\n"), HasSubstr("belongs in [device.host]"));
  EXPECT_THAT(error_of("[device.gpu16]\nmemory = \"1GiB\"\n"),
              HasSubstr("device.gpu16: unknown key"));
}

TEST_F(Node, DeclaresGpusByNumber) {
  auto config = load("[device.gpu0]\nmemory = \"24GiB\"\n[device.gpu3]\nmemory = \"80GiB\"\n");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->gpu_memory, (std::map<std::uint32_t, Bytes>{{0, 24_GiB}, {3, 80_GiB}}));
}

TEST_F(Node, ChecksValuesAgainstEachOther) {
  EXPECT_THAT(error_of("[limits]\nqueue_total = 10\n"),
              HasSubstr("less than limits.queue_per_model"));
  EXPECT_THAT(error_of("[limits]\njson_body = \"1GiB\"\n"),
              HasSubstr("less than limits.json_body"));
  EXPECT_THAT(error_of("[device.host]\nmemory = \"1024TiB\"\n"), HasSubstr("this machine has"));
  EXPECT_THAT(error_of("uid_range = [5, 10]\n"), HasSubstr("is not a range"));
  EXPECT_THAT(error_of("uid_range = [2000, 1999]\n"), HasSubstr("is not a range"));
  EXPECT_THAT(error_of("uid_range = 2000\n"), HasSubstr("two integers"));
  EXPECT_THAT(error_of("models = [\"nowhere\"]\n"), HasSubstr("nowhere is no folder"));
}

TEST_F(Node, DocumentedDefaultsAreTheRealOnes) {
  std::filesystem::create_directory(folder_.path() / "models");
  std::string top;
  std::string limits = "[limits]\n";
  for (const KeyDoc& key : node_config_keys()) {
    if (key.fallback.starts_with('(') || key.fallback == "required") continue;
    std::string& table = key.key.starts_with("limits.") ? limits : top;
    table += fmt::format("{} = {}\n", key.key.substr(key.key.find('.') + 1), key.fallback);
  }
  auto spelled = load(top + limits);
  ASSERT_TRUE(spelled.ok()) << spelled.error().message;
  EXPECT_EQ(*spelled, load("").value());
}

TEST(NodePaths, RootUsesTheSystemsFolders) {
  const NodePaths paths = NodePaths::of_user(0, [](const char*) { return "/elsewhere"; });
  EXPECT_EQ(paths, (NodePaths{"/etc/omni", "/var/lib/omni", "/var/log/omni", "/run/omni"}));
  EXPECT_EQ(paths.admin_socket(), "/run/omni/admin.sock");
}

TEST(NodePaths, OthersFollowXdg) {
  std::map<std::string, std::string> variables{{"HOME", "/home/u"}};
  auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(NodePaths::of_user(1000, environment),
            (NodePaths{"/home/u/.config/omni", "/home/u/.local/state/omni",
                       "/home/u/.local/state/omni/logs", "/tmp/omni-1000"}));
  variables["XDG_CONFIG_HOME"] = "/c";
  variables["XDG_STATE_HOME"] = "/s";
  variables["XDG_RUNTIME_DIR"] = "/r";
  EXPECT_EQ(NodePaths::of_user(1000, environment),
            (NodePaths{"/c/omni", "/s/omni", "/s/omni/logs", "/r/omni"}));
  variables["XDG_RUNTIME_DIR"] = "relative";  // the specification says to ignore it
  EXPECT_EQ(NodePaths::of_user(1000, environment).run, "/tmp/omni-1000");
}

TEST(NodePaths, BelowOneFolder) {
  EXPECT_EQ(NodePaths::below("/x/"), (NodePaths{"/x", "/x/state", "/x/logs", "/x/run"}));
  EXPECT_EQ(NodePaths::below("x").config, std::filesystem::current_path() / "x");
}

}  // namespace
}  // namespace omni
