#include "provision/interpreters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provision/provision_test_support.h"

namespace omni {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InterpretersTest : public LoopTest {
 protected:
  // Says what a Python of that version says.
  void install(const fs::path& path, const std::string& version) {
    folder_.write(path, "#!/bin/sh\necho cpython " + version + " linux-x86_64\n", 0755);
  }
  Result<Interpreter> find(const std::string& wanted) {
    Interpreters interpreters({folder_.path() / "usr", folder_.path() / "opt"});
    return await(interpreters.find(wanted));
  }

  TemporaryFolder folder_;
};

TEST_F(InterpretersTest, FindsAVersionAmongThoseInstalled) {
  install("usr/python3.9", "3 9 1");
  install("usr/python3.11", "3 11 2");
  install("usr/python3.11-config", "3 11 2");
  install("opt/python3.11", "3 11 9");
  install("opt/python3.12", "3 12 4");
  EXPECT_EQ(find("3.11")->path, folder_.path() / "usr/python3.11") << "the first folder's";
  EXPECT_EQ(find("3.11.9")->path, folder_.path() / "opt/python3.11");
  EXPECT_EQ(find("3.12")->path, folder_.path() / "opt/python3.12");
  EXPECT_EQ(find("3.12")->version, "3.12.4");
}

TEST_F(InterpretersTest, AMissingVersionNamesThoseThatAreThere) {
  install("usr/python3.9", "3 9 1");
  install("opt/python3.11", "3 11 2");
  folder_.write("opt/python3.10", "#!/bin/sh\nexit 1\n", 0755);
  for (const char* wanted : {"3.1", "3.13", "3.11.20"}) {
    auto missing = find(wanted);
    ASSERT_FALSE(missing.ok()) << wanted;
    EXPECT_EQ(missing.error().code, ErrorCode::provision_failed);
    EXPECT_THAT(missing.error().message,
                AllOf(HasSubstr(std::string("Python ") + wanted + " is not installed"),
                      HasSubstr("3.9.1 (" + (folder_.path() / "usr/python3.9").string() + ")"),
                      HasSubstr("3.11.2 ("), Not(HasSubstr("3.10"))));
  }
}

TEST_F(InterpretersTest, APathIsTakenAsItIs) {
  install("own/python", "3 13 0");
  auto found = find(folder_.path() / "own/python");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->description,
            (folder_.path() / "own/python").string() + "\ncpython 3 13 0 linux-x86_64\n");
  auto missing = find("/no/python");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message,
              AllOf(HasSubstr("/no/python does not run"), HasSubstr("correct engine.python")));
}

TEST_F(InterpretersTest, WhatIsNoPythonIsAnError) {
  folder_.write("own/python", "#!/bin/sh\necho hello\n", 0755);
  auto found = find(folder_.path() / "own/python");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("it tells no version"));
}

TEST_F(InterpretersTest, AnotherPythonBehindTheSameLinkIsAskedAgain) {
  install("first", "3 11 2");
  install("second", "3 13 0");
  fs::create_symlink("first", folder_.path() / "python");
  Interpreters interpreters({});
  const std::string link = folder_.path() / "python";
  EXPECT_EQ(await(interpreters.find(link))->version, "3.11.2");
  fs::remove(link);
  fs::create_symlink("second", link);
  EXPECT_EQ(await(interpreters.find(link))->version, "3.13.0");
}

}  // namespace
}  // namespace omni
