#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/detached.hpp>
#include <thread>

#include "http/client.h"
#include "http/http_test_support.h"
#include "http/server.h"

namespace omni::http {
namespace {

using namespace test;

// One I/O thread as the daemon has it: own loop, server on the shared address, client and pool.
struct IoThread {
  IoThread(Listener listener, const Endpoint& target) : endpoint(target) {
    server.serve(std::move(listener));
    asio::co_spawn(loop, call_others(), asio::detached);
    thread = std::thread([this] { loop.run(); });
  }

  asio::awaitable<void> call_others() {
    for (int i = 0; i < 200; ++i) {
      // Without keep-alive each request is a new connection, which the kernel gives to any thread.
      Headers headers;
      headers.add("Connection", i % 2 == 0 ? "close" : "keep-alive");
      auto reply = co_await client.request(endpoint, "POST", "/x", headers, "body", 10s);
      if (reply.ok() && reply->body == "POST /x body") ++answered;
    }
    finished = true;
  }

  Endpoint endpoint;
  asio::io_context loop{1};
  std::size_t served = 0;
  Server server{loop, {}, [this](Exchange& exchange) -> asio::awaitable<void> {
                  ++served;
                  co_await echo(exchange);
                }};
  Client client{loop};
  int answered = 0;
  std::atomic<bool> finished = false;
  std::thread thread;
};

TEST(ServerThreads, ShareOneAddressAndNothingElse) {
  auto first = listen_on(Endpoint::tcp_at("127.0.0.1", 0));
  ASSERT_TRUE(first.ok());
  const Endpoint endpoint = first->endpoint;
  auto second = listen_beside(*first);
  ASSERT_TRUE(second.ok());
  IoThread threads[2] = {{std::move(*first), endpoint}, {std::move(*second), endpoint}};
  for (IoThread& each : threads) {
    while (!each.finished) std::this_thread::yield();
  }
  for (IoThread& each : threads) {
    asio::co_spawn(each.loop, each.server.stop(Clock::now() + 2s),
                   [&](std::exception_ptr) { each.loop.stop(); });
  }
  for (IoThread& each : threads) each.thread.join();
  for (IoThread& each : threads) {
    EXPECT_EQ(each.answered, 200);
    EXPECT_GT(each.served, 0u) << "the kernel spreads connections over both";
  }
}

}  // namespace
}  // namespace omni::http
