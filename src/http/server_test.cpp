#include "http/server.h"

#include <gtest/gtest.h>

#include "http/http_test_support.h"

namespace omni::http {
namespace {

using namespace test;

const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

TEST(Server, AnswersOnUnixSocketAndLoopback) {
  for (const bool tcp : {false, true}) {
    TestServer server(echo, {}, tcp);
    server.run([&]() -> asio::awaitable<void> {
      auto client = server.connect();
      co_await client.send("POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.status, 200);
      EXPECT_EQ(answer.body, "POST /v1/x?y=1 hello");
      EXPECT_EQ(answer.headers.at("content-type"), "text/plain");
      EXPECT_TRUE(answer.headers.contains("date"));
      EXPECT_FALSE(answer.headers.contains("connection"));
    }());
  }
}

TEST(Server, KeepsConnectionAndServesPipelinedRequestsInOrder) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    std::string requests;
    for (int i = 0; i < 50; ++i) {
      requests +=
          "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    }
    co_await client.send(requests);
    for (int i = 0; i < 50; ++i) {
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.body, "POST /" + std::to_string(i) + " abc");
    }
    EXPECT_EQ(server.server->connections(), 1u);
  }());
}

TEST(Server, UnderstandsRequestSplitAtEveryByte) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    const std::string request =
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3;ext=\"v\"\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
    auto client = server.connect();
    for (std::size_t cut = 1; cut < request.size(); ++cut) {
      co_await client.send(request.substr(0, cut));
      // The server takes the first part before the second is sent.
      co_await pause(server.loop, 0ms);
      co_await client.send(request.substr(cut));
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.body, "POST /a abcde") << "cut at " << cut;
      if (answer.status != 200) co_return;
    }
  }());
}

TEST(Server, RoundTripsLargeBodies) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    const std::string body(1 << 20, 'x');
    auto client = server.connect();
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n" + body);
    Answer answer = co_await client.read();
    EXPECT_EQ(answer.body, "POST / " + body);
    std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 64; ++i) chunked += "4000\r\n" + body.substr(0, 0x4000) + "\r\n";
    co_await client.send(chunked + "0\r\n\r\n");
    answer = co_await client.read();
    EXPECT_EQ(answer.body, "POST / " + body);
  }());
}

}  // namespace
}  // namespace omni::http
