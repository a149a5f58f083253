#include "gateway/head_rules.h"

#include <gtest/gtest.h>

namespace omni::gateway {
namespace {

http::RequestHead head(std::string host, std::string origin = "") {
  http::RequestHead head;
  head.method = "POST";
  if (!host.empty()) head.headers.add("Host", std::move(host));
  if (!origin.empty()) head.headers.add("Origin", std::move(origin));
  return head;
}

bool allowed(const http::RequestHead& request, const NodeConfig& config = {}) {
  auto outcome = check_caller(request, config);
  if (!outcome.ok()) EXPECT_EQ(outcome.error().code, ErrorCode::forbidden_origin);
  return outcome.ok();
}

TEST(HeadRules, LoopbackTakesItsOwnNamesOnly) {
  for (const char* host : {"localhost", "LOCALHOST:8484", "127.0.0.1:1", "127.8.9.1", "[::1]:8484",
                           "omni.localhost", ""}) {
    EXPECT_TRUE(allowed(head(host))) << host;
  }
  for (const char* host : {"evil.example", "127.evil.example", "localhost.evil.example", "10.0.0.1",
                           "notlocalhost", "[::2]", "127.0.0.1.evil.example:80"}) {
    EXPECT_FALSE(allowed(head(host))) << host;
  }
}

TEST(HeadRules, APublicListenerTakesAnyHost) {
  NodeConfig config;
  config.listen.push_back({"0.0.0.0", 8484});
  EXPECT_TRUE(allowed(head("gpu7.example"), config));
  EXPECT_FALSE(allowed(head("gpu7.example", "http://gpu7.example"), config));
}

TEST(HeadRules, RefusesAForeignOrigin) {
  NodeConfig config;
  config.cors_origins = {"https://app.example"};
  EXPECT_TRUE(allowed(head("localhost", "https://app.example"), config));
  EXPECT_FALSE(allowed(head("localhost", "https://evil.example"), config));
  EXPECT_FALSE(allowed(head("localhost", "null"), config));
  EXPECT_FALSE(allowed(head("localhost:8484", "http://localhost:3000"), config));
  EXPECT_TRUE(allowed(head("localhost:8484", "http://localhost:8484"), config));
  EXPECT_EQ(allowed_origin(head("x", "https://app.example"), config), "https://app.example");
  EXPECT_EQ(allowed_origin(head("x", "https://evil.example"), config), "");
  config.cors_origins = {"*"};
  EXPECT_TRUE(allowed(head("localhost", "https://evil.example"), config));
}

}  // namespace
}  // namespace omni::gateway
