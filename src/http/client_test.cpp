#include "http/client.h"

#include <gtest/gtest.h>

#include "http/http_test_support.h"

namespace omni::http {
namespace {

using namespace test;

TEST(Client, SendsWholeRequestAndGivesWholeAnswer) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    auto answer = co_await client.request(server.endpoint, "POST", "/x", {}, "body", 5s);
    EXPECT_TRUE(answer.ok());
    if (!answer.ok()) co_return;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "POST /x body");
    EXPECT_EQ(answer->headers.get("content-type"), "text/plain");
  }());
}

TEST(Client, ReusesConnection) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    for (int i = 0; i < 20; ++i) {
      auto answer = co_await client.request(server.endpoint, "GET", "/x", {}, "", 5s);
      EXPECT_TRUE(answer.ok());
    }
    EXPECT_EQ(server.server->connections(), 1u);
  }());
}

TEST(Client, SaysWhenNobodyListens) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    const Endpoint nobody = Endpoint::unix_at((server.folder.path() / "nobody.sock").string());
    auto answer = co_await client.request(nobody, "GET", "/x", {}, "", 5s);
    EXPECT_FALSE(answer.ok());
    if (answer.ok()) co_return;
    EXPECT_EQ(answer.error().code, ErrorCode::daemon_unreachable);
    EXPECT_NE(answer.error().message.find("nobody.sock"), std::string::npos);
  }());
}

}  // namespace
}  // namespace omni::http
