#include <gmock/gmock.h>

#include <cstring>

#include "protocol/shim_protocol.h"

namespace omni::protocol {
namespace {

using testing::HasSubstr;

StartRequest small() {
  StartRequest request;
  request.argv = {"/bin/true", ""};
  request.env = {"A=1"};
  request.working_directory = "/";
  request.run_dir = "/run/x";
  request.log_file = "/log/x";
  request.reach = {{"/a", false}, {"/b", true}};
  return request;
}

TEST(StartRequest, StringsComeInTheOrderOfTheContract) {
  const auto encoded = encode(small());
  ASSERT_TRUE(encoded.ok());
  StartHeader header;
  std::memcpy(&header, encoded->data(), sizeof header);
  EXPECT_EQ(header.argc, 2u);
  EXPECT_EQ(header.envc, 1u);
  EXPECT_EQ(header.reach_count, 2u);
  StringWalk strings(encoded->data() + sizeof header, encoded->data() + encoded->size());
  for (const char* expected : {"/", "/run/x", "/log/x", "/bin/true", "", "A=1", "r/a", "w/b"}) {
    EXPECT_STREQ(strings.next(), expected);
  }
  EXPECT_EQ(strings.next(), nullptr);
}

TEST(StartRequest, StringThatIsCutIsNotRead) {
  const char text[] = {'a', '\0', 'b'};
  StringWalk strings(text, text + sizeof text);
  EXPECT_STREQ(strings.next(), "a");
  EXPECT_EQ(strings.next(), nullptr);
}

TEST(StartRequest, WhatTheShimCannotTakeIsRefusedByName) {
  StartRequest zero = small();
  zero.argv.push_back(std::string("a\0b", 3));
  StartRequest many = small();
  many.env.assign(kMaxStartStrings + 1, "A=1");
  StartRequest large = small();
  large.env.push_back("A=" + std::string(kMaxStartBytes, 'x'));
  StartRequest none = small();
  none.argv.clear();
  EXPECT_THAT(encode(zero).error().message, HasSubstr("an argument holds a zero byte"));
  EXPECT_THAT(encode(many).error().message, HasSubstr("4097 environment variables"));
  EXPECT_THAT(encode(large).error().message, HasSubstr("the most is 1048576"));
  EXPECT_THAT(encode(none).error().message, HasSubstr("the command is empty"));
}

}  // namespace
}  // namespace omni::protocol
