#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>

#include "http/http_test_support.h"
#include "http/server.h"

namespace omni::http {
namespace {

using namespace test;

const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

// ---- the client leaving

// A handler that waits, with the watch that a handler sets around a wait.
struct Waiting {
  asio::awaitable<void> operator()(Exchange& exchange) {
    asio::steady_timer forever(co_await asio::this_coro::executor, TimePoint::max());
    ++running;
    if (watch) {
      exchange.on_client_gone([&] {
        ++gone;
        forever.cancel();
      });
    }
    timer = &forever;
    co_await forever.async_wait(kTuple);
    --running;
    saw_gone = exchange.client_gone();
    ResponseHead head;
    auto sent = co_await exchange.respond(std::move(head), "done");
    delivered = sent.ok();
  }
  bool watch = true;
  int running = 0;
  int gone = 0;
  bool saw_gone = false;
  bool delivered = false;
  asio::steady_timer* timer = nullptr;
};

// Waiting comes first: its counters outlive the handlers that ~TestServer ends.
struct WaitingServer : Waiting, TestServer {
  explicit WaitingServer(ServerOptions options = {}, bool tcp = false)
      : TestServer([this](Exchange& exchange) { return Waiting::operator()(exchange); },
                   std::move(options), tcp) {}
};

TEST(ClientGone, IsSeenWithinATenthOfASecond) {
  for (const bool tcp : {false, true}) {
    WaitingServer server({}, tcp);
    server.run([&]() -> asio::awaitable<void> {
      auto client = server.connect();
      // The FIN comes behind a pipelined request.
      co_await client.send(kGet + kGet);
      const bool runs = co_await eventually(server.loop, [&] { return server.running == 1; });
      EXPECT_TRUE(runs);
      const TimePoint left = Clock::now();
      client.close();
      const bool seen = co_await eventually(server.loop, [&] { return server.gone == 1; });
      EXPECT_TRUE(seen);
      EXPECT_LT(Clock::now() - left, 100ms);
      co_await eventually(server.loop, [&] { return server.running == 0; });
      EXPECT_TRUE(server.saw_gone);
    }());
  }
}

TEST(ClientGone, CountsHalfCloseAsLeaving) {
  WaitingServer server;
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    client.finish_sending();
    const bool seen = co_await eventually(server.loop, [&] { return server.gone == 1; });
    EXPECT_TRUE(seen);
  }());
}

TEST(ClientGone, IsAskedDirectlyWithoutWatch) {
  WaitingServer server;
  server.watch = false;
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    co_await eventually(server.loop, [&] { return server.running == 1; });
    client.close();
    co_await pause(server.loop, 50ms);
    EXPECT_EQ(server.gone, 0);
    server.timer->cancel();
    co_await eventually(server.loop, [&] { return server.running == 0; });
    EXPECT_TRUE(server.saw_gone);
  }());
}

TEST(ClientGone, IsTakenBackByEmptyFunction) {
  int gone = 0;
  TestServer server([&](Exchange& exchange) -> asio::awaitable<void> {
    exchange.on_client_gone([&] { ++gone; });
    exchange.on_client_gone({});
    asio::steady_timer timer(server.loop, 80ms);
    co_await timer.async_wait(kTuple);
  });
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    client.close();
    co_await eventually(server.loop, [&] { return server.server->connections() == 0; });
    EXPECT_EQ(gone, 0);
  }());
}

// ---- limits

TEST(Server, AtItsCapClosesIdleConnectionForNewOne) {
  ServerOptions options;
  options.max_connections = 2;
  TestServer server(echo, options);
  server.run([&]() -> asio::awaitable<void> {
    auto first = server.connect();
    co_await first.send(kGet);
    co_await first.read();
    auto second = server.connect();
    co_await second.send(kGet);
    co_await second.read();
    auto third = server.connect();
    co_await third.send(kGet);
    const Answer answer = co_await third.read();
    EXPECT_EQ(answer.status, 200);
    const std::string rest = co_await first.read_to_end();
    EXPECT_EQ(rest, "") << "the longest idle one made room";
  }());
}

TEST(Server, AtItsCapLeavesNewConnectionsWaiting) {
  ServerOptions options;
  options.max_connections = 1;
  WaitingServer server(options);
  server.run([&]() -> asio::awaitable<void> {
    auto first = server.connect();
    co_await first.send(kGet);
    co_await eventually(server.loop, [&] { return server.running == 1; });
    auto second = server.connect();
    co_await second.send(kGet);
    co_await pause(server.loop, 60ms);
    EXPECT_EQ(server.server->connections(), 1u);
    server.timer->cancel();
    co_await first.read();
    const bool served = co_await eventually(server.loop, [&] { return server.running == 1; });
    EXPECT_TRUE(served);
  }());
}

TEST(Server, OutOfDescriptorsPausesAndGoesOn) {
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizers need descriptors of their own to look at an object";
#endif
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(client.fd()) + 1;
    ::setrlimit(RLIMIT_NOFILE, &none);
    const std::clock_t cpu = std::clock();
    co_await pause(server.loop, 150ms);
    const double busy = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    EXPECT_EQ(server.server->connections(), 0u);
    EXPECT_LT(busy, 0.05) << "accepting spins";
    ::setrlimit(RLIMIT_NOFILE, &before);
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 200);
  }());
}

// ---- ending

TEST(Drain, ClosesIdleServesRunningTakesNoNew) {
  WaitingServer server;
  server.run([&]() -> asio::awaitable<void> {
    auto idle = server.connect();
    auto busy = server.connect();
    co_await busy.send(kGet + kGet);
    co_await eventually(server.loop, [&] { return server.running == 1; });
    server.server->drain();
    const std::string bytes = co_await idle.read_to_end();
    EXPECT_EQ(bytes, "");
    const auto address = SocketAddress::of(server.endpoint);
    Fd late(::socket(AF_UNIX, SOCK_STREAM, 0));
    EXPECT_NE(::connect(late.get(), address->get(), address->size()), 0);
    EXPECT_EQ(server.server->active_exchanges(), 1u);
    server.timer->cancel();
    const Answer answer = co_await busy.read();
    EXPECT_EQ(answer.body, "done");
    EXPECT_EQ(answer.headers.at("connection"), "close");
    const std::string rest = co_await busy.read_to_end();
    EXPECT_EQ(rest, "") << "the pipelined request is not begun";
  }());
}

TEST(Drain, ServesRequestThatArrivedUnnoticed) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    co_await client.read();
    // Straight into the socket: the loop has no turn between the bytes and the drain.
    EXPECT_GT(::send(client.fd(), kGet.data(), kGet.size(), 0), 0);
    server.server->drain();
    const Answer answer = co_await client.read();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("connection"), "close");
  }());
}

TEST(Stop, EndsWithTheLastExchange) {
  WaitingServer server;
  server.run([&]() -> asio::awaitable<void> {
    auto client = server.connect();
    co_await client.send(kGet);
    co_await eventually(server.loop, [&] { return server.running == 1; });
    asio::steady_timer later(server.loop, 20ms);
    later.async_wait([&](boost::system::error_code) { server.timer->cancel(); });
    const TimePoint begun = Clock::now();
    co_await server.server->stop(begun + 5s);
    EXPECT_LT(Clock::now() - begun, 2s);
    EXPECT_TRUE(server.delivered);
    EXPECT_EQ(server.server->connections(), 0u);
  }());
}

TEST(Stop, CutsTheRestAtItsDeadline) {
  WaitingServer server;
  server.run([&]() -> asio::awaitable<void> {
    auto waits = server.connect();
    co_await waits.send(kGet);
    auto half = server.connect();
    co_await half.send("GET / HT");
    co_await eventually(server.loop, [&] { return server.running == 1; });
    const TimePoint begun = Clock::now();
    co_await server.server->stop(begun + 30ms);
    EXPECT_LT(Clock::now() - begun, 2s);
    EXPECT_EQ(server.server->active_exchanges(), 0u);
    EXPECT_EQ(server.server->connections(), 0u);
    EXPECT_FALSE(server.delivered);
    const Answer answer = co_await waits.read();
    EXPECT_EQ(answer.status, 0);
  }());
}

}  // namespace
}  // namespace omni::http
