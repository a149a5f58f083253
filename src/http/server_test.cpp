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

// ---- heads that never reach the handler

asio::awaitable<void> must_not_run(Exchange&) {
  ADD_FAILURE() << "the handler ran";
  co_return;
}

ServerOptions quick(Duration timeout) {
  ServerOptions options;
  options.header_timeout = options.idle_timeout = timeout;
  options.body_idle_timeout = options.write_timeout = timeout;
  options.refuse = [](const Error& error) {
    Refusal answer;
    answer.head.headers.add("Content-Type", "application/json");
    answer.body = "{\"code\":\"" + std::string(error.info().name) + "\"}";
    return answer;
  };
  return options;
}

TEST(Server, RefusesBadHeadInTheCallersFormAndCloses) {
  TestServer server(must_not_run, quick(5s));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx" + kGet);
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.body, "{\"code\":\"invalid_request\"}");
    EXPECT_EQ(answer.headers.at("content-type"), "application/json");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    const std::string rest = co_await client.read_to_end();
    EXPECT_EQ(rest, "") << "the request behind a refused one is not served";
  }());
}

TEST(Server, RefusesTooLargeHead) {
  TestServer server(must_not_run, quick(5s));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(100'000, 'x'));
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 431);
    EXPECT_EQ(answer.body, "{\"code\":\"head_too_large\"}");
  }());
}

TEST(Server, SkipsEmptyLineBeforeRequest) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("\r\n" + kGet + "\r\n" + kGet);
    Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 200);
    answer = co_await client.read();
    EXPECT_EQ(answer.status, 200);
  }());
}

TEST(Server, ClosesIdleConnectionSilently) {
  TestServer server(must_not_run, quick(30ms));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    const std::string bytes = co_await client.read_to_end();
    EXPECT_EQ(bytes, "");
    EXPECT_EQ(client.last_status(), asio::error::eof);
  }());
}

TEST(Server, EndsSlowHeadHoweverItDrips) {
  TestServer server(must_not_run, quick(60ms));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    const TimePoint begun = Clock::now();
    const std::string head = "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(1000, 'x');
    for (char c : head) {
      const bool sent = co_await client.send(std::string(1, c));
      if (!sent || Clock::now() > begun + 2s) break;
      co_await pause(server.loop, 1ms);
      if (Clock::now() > begun + 200ms) break;
    }
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 408);
    EXPECT_EQ(answer.body, "{\"code\":\"request_timeout\"}");
  }());
}

// ---- request bodies

TEST(Server, EndsWaitForBodyThatStops) {
  TestServer server(echo, quick(40ms));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.body, "POST / [request_timeout]");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    const std::string rest = co_await client.read_to_end();
    EXPECT_EQ(rest, "");
  }());
}

TEST(Server, TellsHandlerOfMalformedChunksAndCloses) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc" +
                         kGet);
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.body, "POST / [invalid_request]");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    const std::string rest = co_await client.read_to_end();
    EXPECT_EQ(rest, "");
  }());
}

TEST(Server, InvitesBodyOnlyWhenHandlerReadsIt) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    if (exchange.request().target == "/read") {
      co_await echo(exchange);
    } else {
      ResponseHead head{.status = 403};
      auto sent = co_await exchange.respond(std::move(head), "no");
      EXPECT_TRUE(sent.ok());
    }
  });
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    const std::string fields = "Host: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    co_await client.send("POST /read HTTP/1.1\r\n" + fields);
    Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 100);
    co_await client.send("abc");
    answer = co_await client.read();
    EXPECT_EQ(answer.body, "POST /read abc");
    // Sent without waiting for the invitation: none is needed.
    co_await client.send("POST /read HTTP/1.1\r\n" + fields + "abc");
    answer = co_await client.read();
    EXPECT_EQ(answer.status, 200);
    co_await client.send("POST /other HTTP/1.1\r\n" + fields);
    answer = co_await client.read();
    EXPECT_EQ(answer.status, 403);
    EXPECT_EQ(answer.headers.at("connection"), "close")
        << "whether the body follows is not known: the connection cannot be used again";
  }());
}

asio::awaitable<void> answer_without_reading(Exchange& exchange) {
  ResponseHead head{.status = 404};
  auto sent = co_await exchange.respond(std::move(head), "no such path");
  EXPECT_TRUE(sent.ok());
}

TEST(Server, SkipsSmallUnreadBodyAndKeepsConnection) {
  TestServer server(answer_without_reading);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n");
    Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 404);
    EXPECT_FALSE(answer.headers.contains("connection"));
    co_await client.send(std::string(50'000, 'x') + kGet);
    answer = co_await client.read();
    EXPECT_EQ(answer.status, 404);
    EXPECT_FALSE(answer.headers.contains("connection"));
  }());
}

TEST(Server, DeliversRefusalToClientThatStillUploads) {
  TestServer server(answer_without_reading, {}, true);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n" +
                         std::string(5'000'000, 'x'));
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 404);
    EXPECT_EQ(answer.headers.at("connection"), "close");
  }());
}

TEST(Server, BoundsBodyWithoutReadingWhatIsTooLong) {
  Result<std::string> body = std::string();
  TestServer server([&](Exchange& exchange) -> asio::awaitable<void> {
    body = co_await exchange.read_all(10_B);
    ResponseHead head;
    auto sent = co_await exchange.respond(std::move(head), "");
    EXPECT_TRUE(sent.ok());
  });
  server.run([&]() -> asio::awaitable<void> {
    for (const std::string& request :
         {std::string("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"),
          std::string("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
                      "chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n")}) {
      auto client = server.connect();
      co_await client.send(request);
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.status, 200);
      EXPECT_FALSE(body.ok());
      if (body.ok()) co_return;
      EXPECT_EQ(body.error().code, ErrorCode::body_too_large);
      EXPECT_NE(body.error().message.find("10 B"), std::string::npos) << body.error().message;
    }
    auto client = server.connect();
    co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
    co_await client.read();
    EXPECT_TRUE(body.ok());
  }());
}

TEST(Server, TellsHandlerOfClientThatLeavesMidBody) {
  std::optional<Error> seen;
  TestServer server([&](Exchange& exchange) -> asio::awaitable<void> {
    auto body = co_await exchange.read_all(1_MiB);
    if (!body.ok()) seen = body.error();
    EXPECT_TRUE(exchange.client_gone());
  });
  server.run([&]() -> asio::awaitable<void> {
    {
      auto client = server.connect();
      co_await client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    }
    const bool ended = co_await eventually(server.loop, [&] { return seen.has_value(); });
    EXPECT_TRUE(ended);
    if (seen) EXPECT_EQ(seen->code, ErrorCode::cancelled);
  }());
}

// ---- answers

TEST(Server, AnswersHeadWithoutBody) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n" + kGet);
    Answer answer = co_await client.read(true);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("content-length"), "8");
    answer = co_await client.read();
    EXPECT_EQ(answer.body, "GET /x ");
  }());
}

TEST(Server, SendsNoBodyWhereNoneBelongs) {
  int status = 0;
  TestServer server([&](Exchange& exchange) -> asio::awaitable<void> {
    ResponseHead head{.status = status};
    auto sent = co_await exchange.respond(std::move(head), "never seen");
    EXPECT_TRUE(sent.ok());
  });
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    for (const int each : {204, 304}) {
      status = each;
      co_await client.send(kGet);
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.status, each);
      EXPECT_EQ(answer.body, "");
      EXPECT_FALSE(answer.headers.contains("content-length"));
      EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
    }
  }());
}

asio::awaitable<void> stream_three(Exchange& exchange) {
  ResponseHead head;
  auto sent = co_await exchange.start(std::move(head));
  EXPECT_TRUE(sent.ok());
  for (const char* part : {"one ", "", "two ", "three"}) {
    sent = co_await exchange.write(part);
    EXPECT_TRUE(sent.ok());
  }
  EXPECT_EQ(exchange.bytes_sent(), 13u);
  sent = co_await exchange.finish();
  EXPECT_TRUE(sent.ok());
}

TEST(Server, StreamsInChunksAndKeepsConnection) {
  TestServer server(stream_three);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    for (int i = 0; i < 2; ++i) {
      co_await client.send(kGet);
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.body, "one two three");
      EXPECT_EQ(answer.headers.at("transfer-encoding"), "chunked");
    }
  }());
}

TEST(Server, SpeaksHttp10) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    if (exchange.request().target == "/stream") co_await stream_three(exchange);
    if (exchange.request().target != "/stream") co_await echo(exchange);
  });
  server.run([&]() -> asio::awaitable<void> {
    auto kept = server.connect();
    for (int i = 0; i < 2; ++i) {
      co_await kept.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
      const Answer answer = co_await kept.read();
      EXPECT_EQ(answer.headers.at("connection"), "keep-alive");
    }
    auto closed = server.connect();
    co_await closed.send("GET /x HTTP/1.0\r\n\r\n");
    std::string bytes = co_await closed.read_to_end();
    EXPECT_TRUE(bytes.ends_with("\r\n\r\nGET /x ")) << bytes;
    auto streamed = server.connect();
    co_await streamed.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    bytes = co_await streamed.read_to_end();
    EXPECT_TRUE(bytes.ends_with("\r\n\r\none two three")) << bytes;
    EXPECT_EQ(bytes.find("chunked"), std::string::npos);
    EXPECT_NE(bytes.find("Connection: close"), std::string::npos);
  }());
}

TEST(Server, FlushesHeadBeforeFirstEvent) {
  bool head_seen = false;
  TestServer server([&](Exchange& exchange) -> asio::awaitable<void> {
    ResponseHead head;
    auto sent = co_await exchange.start(std::move(head), true);
    EXPECT_TRUE(sent.ok());
    auto executor = co_await asio::this_coro::executor;
    asio::steady_timer tick(executor);
    while (!head_seen) {
      tick.expires_after(1ms);
      co_await tick.async_wait(kTuple);
    }
    sent = co_await exchange.write("event");
    sent = co_await exchange.finish();
    EXPECT_TRUE(sent.ok());
  });
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    const std::string head = co_await client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n"));
    head_seen = true;
    const std::string rest = co_await client.read_until("0\r\n\r\n");
    EXPECT_EQ(rest, "5\r\nevent\r\n0\r\n\r\n");
  }());
}

TEST(Server, BreaksAnswerThatContradictsItsLength) {
  for (const char* body : {"longer", "s"}) {
    TestServer server([&](Exchange& exchange) -> asio::awaitable<void> {
      ResponseHead head{.content_length = 3};
      auto sent = co_await exchange.start(std::move(head));
      sent = co_await exchange.write(body);
      if (sent.ok()) sent = co_await exchange.finish();
      EXPECT_FALSE(sent.ok());
    });
    server.run([&]() -> asio::awaitable<void> {
      auto client = server.connect();
      co_await client.send(kGet);
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.status, 0) << "no whole answer came";
    }());
  }
}

TEST(Server, ShowsAbortAsBrokenMessage) {
  TestServer server(
      [](Exchange& exchange) -> asio::awaitable<void> {
        ResponseHead head;
        auto sent = co_await exchange.start(std::move(head));
        sent = co_await exchange.write("part");
        EXPECT_TRUE(sent.ok());
        exchange.abort();
        sent = co_await exchange.write("more");
        EXPECT_FALSE(sent.ok());
      },
      {}, true);
  server.run([&]() -> asio::awaitable<void> {
    auto chunked = server.connect();
    co_await chunked.send(kGet);
    const std::string bytes = co_await chunked.read_to_end();
    EXPECT_TRUE(bytes.ends_with("4\r\npart\r\n")) << bytes;
    auto until_close = server.connect();
    co_await until_close.send("GET / HTTP/1.0\r\n\r\n");
    co_await until_close.read_to_end();
    EXPECT_EQ(until_close.last_status(), asio::error::connection_reset);
  }());
}

TEST(Server, RefusesInjectedHeaderAndTakesAnotherAnswer) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    ResponseHead bad;
    bad.headers.add("X", "a\r\nSet-Cookie: evil=1");
    auto sent = co_await exchange.respond(std::move(bad), "");
    EXPECT_FALSE(sent.ok());
    EXPECT_FALSE(exchange.started());
    ResponseHead good{.status = 502};
    sent = co_await exchange.respond(std::move(good), "");
    EXPECT_TRUE(sent.ok());
  });
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 502);
    EXPECT_FALSE(answer.headers.contains("set-cookie"));
  }());
}

TEST(Server, EndsAnswerToClientThatReadsNothing) {
  std::optional<Error> seen;
  TestServer server(
      [&](Exchange& exchange) -> asio::awaitable<void> {
        ResponseHead head;
        auto sent = co_await exchange.start(std::move(head));
        const std::string block(1 << 20, 'x');
        while (sent.ok()) sent = co_await exchange.write(block);
        seen = sent.error();
      },
      quick(50ms));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    const bool ended = co_await eventually(server.loop, [&] { return seen.has_value(); });
    EXPECT_TRUE(ended);
    if (seen) EXPECT_EQ(seen->code, ErrorCode::cancelled);
    if (seen) EXPECT_NE(seen->message.find("read nothing"), std::string::npos) << seen->message;
  }());
}

// ---- handlers that fail

TEST(Server, SurvivesThrowingHandler) {
  TestServer server(
      [](Exchange& exchange) -> asio::awaitable<void> {
        if (exchange.request().target == "/late") {
          ResponseHead head;
          auto sent = co_await exchange.start(std::move(head));
          sent = co_await exchange.write("part");
        }
        if (exchange.request().target == "/silent") co_return;
        throw std::runtime_error("secret detail");
      },
      quick(5s));
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    for (const char* target : {"/early", "/silent"}) {
      co_await client.send("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n");
      const Answer answer = co_await client.read();
      EXPECT_EQ(answer.status, 500);
      EXPECT_EQ(answer.body, "{\"code\":\"internal\"}");
    }
    co_await client.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    const std::string bytes = co_await client.read_to_end();
    EXPECT_TRUE(bytes.ends_with("4\r\npart\r\n")) << bytes;
  }());
}

// ---- upgrade

TEST(Server, HandsOutSocketAfterUpgrade) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    ResponseHead head{.status = 101};
    head.headers.add("Upgrade", "echo");
    auto upgraded = co_await exchange.upgrade(std::move(head));
    EXPECT_TRUE(upgraded.ok());
    if (!upgraded.ok()) co_return;
    EXPECT_EQ(upgraded->read_ahead, "early");
    EXPECT_EQ(::send(upgraded->socket.get(), "raw", 3, 0), 3);
  });
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly");
    const std::string bytes = co_await client.read_to_end();
    EXPECT_TRUE(bytes.starts_with("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n"))
        << bytes;
    EXPECT_NE(bytes.find("Connection: Upgrade\r\n"), std::string::npos) << bytes;
    EXPECT_TRUE(bytes.ends_with("\r\n\r\nraw")) << bytes;
  }());
}

}  // namespace
}  // namespace omni::http
