#include "provision/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace omni {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Download, ProgressReadsLikeASentence) {
  EXPECT_EQ(progress_line("model.gguf", Bytes(1288490189), Bytes(5046586573), 48_MiB),
            "model.gguf: 1.2 of 4.7 GiB, 25 %, 48 MiB/s");
  EXPECT_EQ(progress_line("m", 512_MiB, 2_GiB, 1_MiB), "m: 512 MiB of 2 GiB, 25 %, 1 MiB/s");
  EXPECT_EQ(progress_line("m", 512_MiB, std::nullopt, 1_MiB), "m: 512 MiB, 1 MiB/s");
  EXPECT_EQ(progress_line("m", 0_B, 0_B, 0_B), "m: 0 B, 0 B/s");
}

TEST(CurlReply, HoldsTheHeadsInTheirOrder) {
  CurlReply reply;
  for (const char* line :
       {"HTTP/1.1 100 Continue", "", "HTTP/1.1 302 Found", "Location: http://x/?a:b",
        "X-Linked-ETag:   \"abc\"  ", "", "HTTP/2 206 ", "content-range: bytes 1-2/3", "",
        "curl: (18) transfer closed"}) {
    reply.take_line(line);
  }
  ASSERT_EQ(reply.heads.size(), 2U);
  EXPECT_EQ(reply.heads[0].status, 302);
  EXPECT_EQ(reply.heads[0].field("location"), "http://x/?a:b");
  EXPECT_EQ(reply.heads[0].field("x-linked-etag"), "\"abc\"");
  EXPECT_EQ(reply.status(), 206);
  EXPECT_EQ(reply.head()->field("none"), "");
  EXPECT_EQ(reply.message, "curl: (18) transfer closed");
}

TEST(CurlReply, WhatMayGoBetterIsTriedAgain) {
  auto transient = [](int code, int status) {
    CurlReply reply;
    reply.exit.value = code;
    reply.heads = {{.status = status}};
    return reply.is_transient();
  };
  for (const int code : {6, 7, 18, 28, 35, 52, 56, 92}) EXPECT_TRUE(transient(code, 0)) << code;
  for (const int code : {1, 3, 23, 33, 47, 60}) EXPECT_FALSE(transient(code, 0)) << code;
  for (const int status : {408, 429, 500, 503}) EXPECT_TRUE(transient(22, status)) << status;
  for (const int status : {400, 401, 403, 404, 416}) EXPECT_FALSE(transient(22, status)) << status;
}

TEST(CurlConfig, QuotesWhatServersAndUsersWrite) {
  const std::string config = curl_config({.url = "https://h/a?b=\"c\\",
                                          .token = "hf_x",
                                          .if_range = "\"e\\\"",
                                          .from = 7_B,
                                          .output = "/a b/c"},
                                         {});
  EXPECT_THAT(config, HasSubstr("url = \"https://h/a?b=\\\"c\\\\\"\n"));
  EXPECT_THAT(config, HasSubstr("output = \"/a b/c\"\n"));
  EXPECT_THAT(config, HasSubstr("header = \"If-Range: \\\"e\\\\\\\"\"\n"));
  EXPECT_THAT(config, HasSubstr("header = \"Authorization: Bearer hf_x\"\n"));
  EXPECT_THAT(config, HasSubstr("continue-at = 7\n"));
}

TEST(CurlConfig, FollowsToEncryptedAddressesOnly) {
  const std::string remote = curl_config({.url = "https://h/x"}, {});
  EXPECT_THAT(remote, HasSubstr("proto = \"=https\"\nproto-redir = \"=https\"\n"));
  EXPECT_THAT(remote, Not(HasSubstr("noproxy")));
  const std::string local = curl_config({.url = "http://127.0.0.1/x"}, {});
  EXPECT_THAT(local, HasSubstr("proto-redir = \"=http,https\"\n"));
  EXPECT_THAT(local, HasSubstr("noproxy = \"*\"\n"));
}

}  // namespace
}  // namespace omni
