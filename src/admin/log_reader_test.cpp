#include "admin/log_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

namespace omni::admin {
namespace {

namespace fs = std::filesystem;

class LogReaderTest : public testing::Test {
 protected:
  LogReaderTest() {
    char pattern[] = "/tmp/omni-log-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    log_ = folder_ / "minilm.log";
  }
  ~LogReaderTest() override { fs::remove_all(folder_); }

  void append(std::string_view text) { std::ofstream(log_, std::ios::app) << text; }
  // What the shim does: FILE.2 to FILE.3, FILE.1 to FILE.2, FILE to FILE.1.
  void rotate() {
    for (int index = 3; index > 0; --index) {
      const fs::path from = index == 1 ? log_ : old(index - 1);
      if (fs::exists(from)) fs::rename(from, old(index));
    }
    append("");
  }
  fs::path old(int index) const { return log_.string() + "." + std::to_string(index); }

  static std::string read_all(LogReader& reader) {
    std::string text;
    std::array<char, 7> buffer;  // a line takes several reads
    for (;;) {
      const Result<std::size_t> n = reader.read(buffer);
      EXPECT_TRUE(n.ok()) << n.error().message;
      if (!n.ok() || *n == 0) return text;
      text.append(buffer.data(), *n);
    }
  }
  std::string last_lines(std::size_t count) {
    LogReader reader(log_);
    for (;;) {
      const Result<bool> found = reader.seek_back(count);
      EXPECT_TRUE(found.ok()) << found.error().message;
      if (!found.ok() || *found) return read_all(reader);
    }
  }

  fs::path folder_;
  fs::path log_;
};

TEST_F(LogReaderTest, FindsTheLastLines) {
  append("one\ntwo\nthree\n");
  EXPECT_EQ(last_lines(0), "");
  EXPECT_EQ(last_lines(1), "three\n");
  EXPECT_EQ(last_lines(2), "two\nthree\n");
  EXPECT_EQ(last_lines(3), "one\ntwo\nthree\n");
  EXPECT_EQ(last_lines(99), "one\ntwo\nthree\n");
}

TEST_F(LogReaderTest, CountsALineWithoutItsEnd) {
  append("one\ntwo");
  EXPECT_EQ(last_lines(1), "two");
  EXPECT_EQ(last_lines(2), "one\ntwo");
}

TEST_F(LogReaderTest, ContinuesTheSearchInOlderFiles) {
  append("one\ntwo\n");
  rotate();
  append("three\n");
  rotate();
  EXPECT_EQ(last_lines(1), "three\n");
  append("four\n");
  EXPECT_EQ(last_lines(2), "three\nfour\n");
  EXPECT_EQ(last_lines(3), "two\nthree\nfour\n");
  EXPECT_EQ(last_lines(99), "one\ntwo\nthree\nfour\n");
}

TEST_F(LogReaderTest, SearchesFurtherThanOneBlock) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "line " + std::to_string(i) + "\n";
  append(text);
  const std::string tail = last_lines(15'000);
  EXPECT_TRUE(tail.starts_with("line 5000\nline 5001\n"));
  EXPECT_TRUE(tail.ends_with("line 19999\n"));
}

TEST_F(LogReaderTest, AnAbsentLogIsEmptyUntilItIsWritten) {
  LogReader reader(log_);
  while (!*reader.seek_back(10)) {
  }
  EXPECT_EQ(read_all(reader), "");
  append("first\n");
  EXPECT_EQ(read_all(reader), "first\n");
}

TEST_F(LogReaderTest, MissesNothingOverARotation) {
  append("one\n");
  LogReader reader(log_);
  EXPECT_EQ(read_all(reader), "one\n");
  append("two\n");
  rotate();
  append("three\n");
  EXPECT_EQ(read_all(reader), "two\nthree\n");
}

TEST_F(LogReaderTest, MissesNothingOverSeveralRotationsAtOnce) {
  append("one\n");
  LogReader reader(log_);
  EXPECT_EQ(read_all(reader), "one\n");
  append("two\n");
  rotate();
  append("three\n");
  rotate();
  append("four\n");
  rotate();
  append("five\n");
  EXPECT_EQ(read_all(reader), "two\nthree\nfour\nfive\n");
}

TEST_F(LogReaderTest, ReadsItsRemovedFileToTheEndAndGoesOnWithTheOldest) {
  append("one\n");
  LogReader reader(log_);
  EXPECT_EQ(read_all(reader), "one\n");
  append("two\n");
  for (const char* line : {"lost\n", "three\n", "four\n", "five\n"}) {
    rotate();
    append(line);
  }
  rotate();
  EXPECT_EQ(read_all(reader), "two\nthree\nfour\nfive\n");
}

TEST_F(LogReaderTest, WaitsBetweenRenameAndCreation) {
  append("one\n");
  LogReader reader(log_);
  EXPECT_EQ(read_all(reader), "one\n");
  fs::rename(log_, old(1));
  EXPECT_EQ(read_all(reader), "");
  append("two\n");
  EXPECT_EQ(read_all(reader), "two\n");
}

TEST_F(LogReaderTest, StartsAgainWhenTheFileIsEmptied) {
  append("one\ntwo\n");
  LogReader reader(log_);
  EXPECT_EQ(read_all(reader), "one\ntwo\n");
  fs::resize_file(log_, 0);
  EXPECT_EQ(read_all(reader), "");
  append("three\n");
  EXPECT_EQ(read_all(reader), "three\n");
}

TEST_F(LogReaderTest, RefusesWhatIsNoFile) {
  fs::create_directory(log_);
  LogReader reader(log_);
  const Result<bool> found = reader.seek_back(1);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::io_error);
}

}  // namespace
}  // namespace omni::admin
