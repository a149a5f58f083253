#include "provision/environments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provision/provision_test_support.h"

namespace omni {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

EnvironmentRecipe recipe() { return {"numpy==2.4.6\n", "", "/usr/bin/python3\ncpython 3 11 2\n"}; }

// Another value would build every environment of every user anew.
TEST(Environment, HashStaysTheSameOverReleases) {
  EXPECT_EQ(recipe().hash(), "06c092bc3f58f3e9784fc211ff015cfad43ce435505e9d215c92b7299e674a10");
}

TEST(Environment, HashDependsOnEachPart) {
  const std::string base = recipe().hash();
  EnvironmentRecipe other = recipe();
  other.requirements += "# comment\n";
  EXPECT_NE(other.hash(), base);
  other = recipe();
  other.overrides = "x";
  EXPECT_NE(other.hash(), base);
  other = recipe();
  other.python += "x";
  EXPECT_NE(other.hash(), base);
  other = recipe();
  other.index = "https://i";
  EXPECT_NE(other.hash(), base);
  // Fields do not run into each other.
  EXPECT_NE((EnvironmentRecipe{"ab", "c", ""}).hash(), (EnvironmentRecipe{"a", "bc", ""}).hash());
}

TEST(Environment, ALockHasHashes) {
  EXPECT_FALSE(recipe().is_lock());
  EXPECT_FALSE((EnvironmentRecipe{"a==1 # --hash=sha256:00\n", "", ""}).is_lock());
  EXPECT_TRUE((EnvironmentRecipe{"a==1 \\\n    --hash=sha256:00\n", "", ""}).is_lock());
}

TEST(Environment, RequirementsMustBeCompleteInThemselves) {
  const TemporaryFolder folder;
  for (const char* line : {"-r other.txt", "  -rother.txt", "--requirement=x", "-c limits.txt",
                           "-e .", "--constraint x", "--editable ."}) {
    const auto file = folder.write("r.txt", fmt::format("numpy\n{}\n", line));
    auto read = read_recipe(file, "", "");
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_THAT(read.error().message, HasSubstr("r.txt:2: ")) << line;
  }
  const auto file = folder.write("r.txt", "# -r x\nclick\n--index-url https://example.org\n");
  EXPECT_TRUE(read_recipe(file, "", "").ok());
}

TEST(Environment, OverridesOfALockAreRefused) {
  const TemporaryFolder folder;
  const auto lock = folder.write("lock", "a==1 --hash=sha256:00\n");
  const auto overrides = folder.write("overrides", "b==1\n");
  auto read = read_recipe(lock, overrides, "");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("remove engine.overrides"));
}

TEST(UvEnvironment, IsCleanButForWhatReachesAnIndex) {
  const auto env = Uv::environment_for_uv({{"LD_PRELOAD", "x.so"},
                                           {"VIRTUAL_ENV", "/venv"},
                                           {"PATH", "/odd"},
                                           {"HOME", "/home/u"},
                                           {"https_proxy", "http://proxy"},
                                           {"SSL_CERT_FILE", "/ca"},
                                           {"UV_CACHE_DIR", "/cache"},
                                           {"UV_PYTHON_DOWNLOADS", "automatic"}},
                                          "/state");
  EXPECT_THAT(env, IsSupersetOf({"HOME=/home/u", "https_proxy=http://proxy", "SSL_CERT_FILE=/ca",
                                 "UV_CACHE_DIR=/cache", "UV_PYTHON_DOWNLOADS=never"}));
  EXPECT_THAT(env, Not(Contains(StartsWith("LD_PRELOAD"))));
  EXPECT_THAT(env, Not(Contains(StartsWith("VIRTUAL_ENV"))));
  EXPECT_THAT(env, Not(Contains("PATH=/odd")));
}

TEST(UvEnvironment, TakesPipsSettingsWhereUvsSayNothing) {
  EXPECT_THAT(Uv::environment_for_uv({{"PIP_INDEX_URL", "http://i"}, {"PIP_CERT", "/ca"}}, "/s"),
              IsSupersetOf({"UV_DEFAULT_INDEX=http://i", "SSL_CERT_FILE=/ca", "HOME=/s"}));
  EXPECT_THAT(
      Uv::environment_for_uv({{"PIP_INDEX_URL", "http://i"}, {"UV_INDEX_URL", "http://u"}}, "/s"),
      Not(Contains(StartsWith("UV_DEFAULT_INDEX"))));
}

TEST(UvProgram, IsTheChosenOneThenOnPathThenInTools) {
  const TemporaryFolder folder;
  const auto state = folder.path() / "state";
  const auto in_tools = folder.write("tools/bin/uv", "#!/bin/sh\n", 0755);
  EXPECT_EQ(Uv::find({{"PATH", ":relative:/nowhere"}}, state)->program(), in_tools);
  const auto on_path = folder.write("path/uv", "#!/bin/sh\n", 0755);
  const std::string path = "/nowhere:" + (folder.path() / "path").string();
  EXPECT_EQ(Uv::find({{"PATH", path}}, state)->program(), on_path);
  const auto chosen = folder.write("my-uv", "#!/bin/sh\n", 0755);
  EXPECT_EQ(Uv::find({{"PATH", path}, {"OMNI_UV", chosen}}, state)->program(), chosen);
}

TEST(UvProgram, MissingSaysHowToGetIt) {
  auto missing = Uv::find({{"PATH", "/nowhere"}}, "/nowhere/state");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::provision_failed);
  EXPECT_THAT(missing.error().message, HasSubstr("pip install uv"));
  auto wrong = Uv::find({{"OMNI_UV", "/no/uv"}}, "/nowhere/state");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("OMNI_UV is \"/no/uv\""));
}

}  // namespace
}  // namespace omni
