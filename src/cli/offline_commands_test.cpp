#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "cli/command_test.h"
#include "cli/golden.h"

namespace omni::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OfflineCommands : public CommandTest {
 protected:
  void write(const fs::path& file, std::string_view content) {
    fs::create_directories((folder_.path() / file).parent_path());
    std::ofstream(folder_.path() / file) << content;
  }
  void write_node(std::string_view broken_model) {
    write("omni.toml", "[limits]\nqueue_timeout = \"30s\"\n");
    write("models/good/model.toml", "task = \"other\"\n[engine]\nkind = \"python\"\n");
    write("models/good/handler.py", "def handle_request(request, context): return {}\n");
    write("models/bad/model.toml", broken_model);
    write("models/bad/handler.py", "");
  }
};

constexpr std::string_view kBroken =
    "task = \"other\"\npined = true\n[engine]\nkind = \"python\"\n[scaling]\nconcurrency = -1\n";

TEST_F(OfflineCommands, CheckPrintsEveryErrorWithItsPlace) {
  write_node(kBroken);
  const Outcome outcome = run_plain({"check", folder_.path()});
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.err,
              HasSubstr("omni: " + (folder_.path() / "models/bad/model.toml:2").string()));
  EXPECT_THAT(outcome.err, HasSubstr("pinned"));
  EXPECT_THAT(outcome.err, HasSubstr("model.toml:6"));
  EXPECT_THAT(outcome.err, HasSubstr("omni: 1 of 3 files are not valid\n"));
  EXPECT_EQ(outcome.out, (folder_.path() / "omni.toml").string() + ": valid\n" +
                             (folder_.path() / "models/good/model.toml").string() + ": valid\n");
}

TEST_F(OfflineCommands, CheckTakesEveryKindOfPath) {
  write_node(kBroken);
  const fs::path& root = folder_.path();
  EXPECT_EQ(run_plain({"check", root / "models/good"}).exit_code, 0);
  EXPECT_EQ(run_plain({"check", root / "models/good/model.toml"}).exit_code, 0);
  EXPECT_EQ(run_plain({"check", root / "models/bad"}).exit_code, 78);
  EXPECT_EQ(run_plain({"check", root / "models"}).exit_code, 78);
  EXPECT_EQ(run_plain({"check", root / "omni.toml"}).exit_code, 78);
  EXPECT_EQ(run_plain({"check", "--root", root}).exit_code, 78);
  EXPECT_EQ(run_plain({"check", root / "absent"}).exit_code, 64);
}

TEST_F(OfflineCommands, CheckReportsAsJson) {
  write_node(kBroken);
  const Outcome outcome = run_plain({"check", "--json", folder_.path()});
  EXPECT_EQ(outcome.exit_code, 78);
  const boost::json::array files = boost::json::parse(outcome.out).at("files").as_array();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].at("valid"), true);
  EXPECT_EQ(files[1].at("valid"), false);
  EXPECT_EQ(files[1].at("file").as_string(), (folder_.path() / "models/bad/model.toml").string());
}

class Gc : public OfflineCommands {
 protected:
  Gc() {
    write("omni.toml", "");
    write("models/good/model.toml", "task = \"other\"\n[engine]\nkind = \"python\"\n");
    write("models/good/handler.py", "");
    write("state/cache/good/1/x", "x");
    write("state/cache/gone/1/x", std::string(10'000, 'x'));
  }
  Outcome gc(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"gc", "--root", folder_.path()});
    return run_plain(std::move(flags));
  }
  bool is_there(const fs::path& path) { return fs::exists(folder_.path() / path); }
};

TEST_F(Gc, RemovesWhatNoModelUsesAndSaysWhatItFreed) {
  const Outcome dry = gc({"--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.out, testing::MatchesRegex(
                           "would remove cache/gone \\([0-9]+ KiB\\)\nwould free [0-9]+ KiB\n"));
  EXPECT_TRUE(is_there("state/cache/gone/1/x"));
  const Outcome outcome = gc();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::StartsWith("removed cache/gone ("));
  EXPECT_THAT(outcome.out, HasSubstr("\nfreed "));
  EXPECT_FALSE(is_there("state/cache/gone"));
  EXPECT_TRUE(is_there("state/cache/good/1/x"));
  EXPECT_EQ(gc({"--json"}).out, "{\"dry_run\":false,\"removed\":[],\"busy\":[],\"freed\":0}\n");
}

TEST_F(Gc, RefusesWhileAModelIsNotValidUnlessForced) {
  write("models/bad/model.toml", kBroken);
  const Outcome refused = gc();
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_THAT(refused.err, HasSubstr("models/bad/model.toml:2"));
  EXPECT_THAT(refused.err, HasSubstr("the model \"bad\" is not valid"));
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_TRUE(is_there("state/cache/gone"));
  EXPECT_EQ(gc({"--force"}).exit_code, 0);
  EXPECT_FALSE(is_there("state/cache/gone"));
}

TEST_F(Gc, RefusesWhenAModelsFolderIsNotThere) {
  fs::rename(folder_.path() / "models", folder_.path() / "elsewhere");
  const Outcome refused = gc();
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_THAT(refused.err, HasSubstr("the models folder " + (folder_.path() / "models").string()));
  EXPECT_TRUE(is_there("state/cache/good"));
  EXPECT_EQ(gc({"--force"}).exit_code, 0);
}

TEST_F(Gc, RefusesWhileNoDaemonHasPreparedAModel) {
  write("models/new/model.toml",
        "task = \"other\"\n[engine]\nkind = \"python\"\nrequirements = \"r.txt\"\n");
  write("models/new/handler.py", "");
  write("models/new/r.txt", "six\n");
  EXPECT_THAT(gc().err, HasSubstr("no daemon has prepared the model \"new\" yet"));
  write("state/versions/new.json",
        R"({"model": "new", "versions": [], "environments": [], "weights": []})");
  EXPECT_EQ(gc().exit_code, 0);
}

TEST_F(Gc, TakesTheConfigThatTheDaemonHas) {
  write("other.toml", "models = [\"others\"]\n");
  write("others/gone/model.toml", "task = \"other\"\n[engine]\nkind = \"python\"\n");
  write("others/gone/handler.py", "");
  EXPECT_THAT(gc({"--config", folder_.path() / "other.toml"}).out, HasSubstr("cache/good"));
  EXPECT_TRUE(is_there("state/cache/gone"));
}

TEST_F(OfflineCommands, ServeGetsEverythingReadAndChecked) {
  write_node(kBroken);
  ServeOptions seen;
  int calls = 0;
  const ServeFn serve = [&](ServeOptions options) -> Result<void> {
    ++calls;
    seen = std::move(options);
    return {};
  };
  const Outcome outcome = run_plain({"serve", "--root", folder_.path()}, {}, serve);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen.paths.run, folder_.path() / "run");
  EXPECT_EQ(seen.config_file, folder_.path() / "omni.toml");
  EXPECT_EQ(seen.config.queue_timeout, std::chrono::seconds(30));
  ASSERT_EQ(seen.models.size(), 2u);
  EXPECT_FALSE(seen.models[0].spec.ok()) << "a broken model is that model's error alone";
  EXPECT_TRUE(seen.models[1].spec.ok());
}

TEST_F(OfflineCommands, ServeRefusesAWrongConfigAndPassesOnTheDaemonsError) {
  const ServeFn serve = [](ServeOptions) -> Result<void> {
    return Error{ErrorCode::already_running, "a daemon runs here"};
  };
  const Outcome running = run_plain({"serve", "--root", folder_.path()}, {}, serve);
  EXPECT_EQ(running.exit_code, 69);
  EXPECT_EQ(running.err, "omni: a daemon runs here\n");
  EXPECT_EQ(run_plain({"serve", "--config", "/nonexistent.toml"}, {}, serve).exit_code, 78);
  write("omni.toml", "listn = []\n");
  EXPECT_EQ(run_plain({"serve", "--root", folder_.path()}, {}, serve).exit_code, 78);
}

TEST_F(OfflineCommands, DoctorSaysWhatItFoundAndWhatToDo) {
  write("omni.toml", "listn = []\n");
  start_daemon();
  const Outcome outcome = run_plain({"doctor", "--root", folder_.path()});
  EXPECT_THAT(outcome.out, testing::StartsWith("CHECK"));
  EXPECT_THAT(outcome.out, HasSubstr("answers at " + daemon_.socket()));
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.out, HasSubstr("\n  config: correct the lines that `omni check` names\n"));
  const Outcome json = run_plain({"doctor", "--json", "--root", folder_.path()});
  EXPECT_EQ(boost::json::parse(json.out).at("checks").as_array()[0].at("check"), "uv");
}

TEST_F(OfflineCommands, TheInstalledCompletionIsThatOfThisProgram) {
  const Outcome outcome = run_plain({"completion", "bash"});
  expect_golden_file(fs::path(__FILE__).parent_path().parent_path().parent_path() /
                         "packaging/completion/omni.bash",
                     outcome.out);
  EXPECT_EQ(run_plain({"completion", "fish"}).exit_code, 64);
}

TEST_F(OfflineCommands, VersionIsPrintedBothWays) {
  EXPECT_EQ(run_plain({"version"}).out, "omni " OMNI_VERSION "\n");
  EXPECT_EQ(run_plain({"--version"}).out, "omni " OMNI_VERSION "\n");
}

}  // namespace
}  // namespace omni::cli
