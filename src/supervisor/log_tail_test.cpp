#include <gmock/gmock.h>

#include "supervisor/test_host.h"

namespace omni {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LogTail : public testing::Test {
 protected:
  LogTail() {
    char name[] = "/tmp/omni-tail-XXXXXX";
    ::close(::mkstemp(name));
    path_ = name;
  }
  ~LogTail() override { fs::remove(path_); }

  std::vector<std::string> tail(std::string_view text, std::size_t count = 20,
                                std::uint64_t from = 0) {
    std::ofstream(path_, std::ios::binary) << text;
    return tail_lines(path_, count, from);
  }

 private:
  fs::path path_;
};

TEST_F(LogTail, GivesTheLastLinesInOrder) {
  EXPECT_THAT(tail("a\nb\nc\n", 2), ElementsAre("b", "c"));
  EXPECT_THAT(tail("a\nb\nunfinished", 2), ElementsAre("b", "unfinished"));
}

TEST_F(LogTail, IsEmptyForAnEmptyOrMissingFile) {
  EXPECT_THAT(tail(""), IsEmpty());
  EXPECT_THAT(tail("\n\n"), IsEmpty());
  EXPECT_THAT(tail_lines("/nonexistent/file", 5), IsEmpty());
}

TEST_F(LogTail, ReplacesBrokenUtf8AndDropsControlCharacters) {
  EXPECT_THAT(tail("ok \xff\xc3(\n"), ElementsAre("ok \uFFFD\uFFFD("));
  EXPECT_THAT(tail("\x1b[31;1mred\x1b[0m\a bell\n"), ElementsAre("red bell"));
  EXPECT_THAT(tail("grün\n"), ElementsAre("grün"));
}

TEST_F(LogTail, ShowsAProgressBarAsItLastWas) {
  EXPECT_THAT(tail("loading 10%\rloading 90%\r\ndone\n"), ElementsAre("loading 90%", "done"));
}

TEST_F(LogTail, CutsLongLinesBetweenCharacters) {
  std::string line;
  for (int i = 0; i < 1000; ++i) line += "ü";
  const auto lines = tail(line + "\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_LE(lines[0].size(), 510u);
  EXPECT_TRUE(lines[0].ends_with("ü…"));
}

TEST_F(LogTail, LeavesOutWhatAnEarlierInstanceWrote) {
  EXPECT_THAT(tail("old\nnew\n", 20, 4), ElementsAre("new"));
}

TEST_F(LogTail, ReadsFromTheBeginningAfterARotation) {
  EXPECT_THAT(tail("new\n", 20, 1000), ElementsAre("new"));
}

}  // namespace
}  // namespace omni
