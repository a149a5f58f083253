// What the tests of this module share: one loop, a folder for sockets, and a raw client that sends
// any bytes and reads answers with Beast's parser, an independent reading of HTTP.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "http/server.h"
#include "http/socket_address.h"

namespace omni::http::test {

using namespace std::chrono_literals;
namespace beast = boost::beast;

using Socket =
    asio::basic_stream_socket<asio::generic::stream_protocol, asio::io_context::executor_type>;

inline constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

// Runs a test's coroutine to its end; a hang fails the test instead of the run.
inline void run(asio::io_context& loop, asio::awaitable<void> body) {
  bool ended = false;
  asio::co_spawn(loop, std::move(body), [&](std::exception_ptr failure) {
    ended = true;
    loop.stop();
    if (failure) std::rethrow_exception(failure);
  });
  loop.restart();
  loop.run_for(20s);
  EXPECT_TRUE(ended) << "the test hangs";
}

inline asio::awaitable<void> pause(asio::io_context& loop, Duration time) {
  asio::steady_timer timer(loop, time);
  co_await timer.async_wait(kTuple);
}

// Until the condition holds; a test that waits for an event it cannot await.
template <typename Condition>
asio::awaitable<bool> eventually(asio::io_context& loop, Condition condition) {
  const TimePoint deadline = Clock::now() + 5s;
  while (!condition()) {
    if (Clock::now() > deadline) co_return false;
    co_await pause(loop, 1ms);
  }
  co_return true;
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "omni-http-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Answer {
  int status = 0;  // 0: no whole answer came
  std::string body;
  std::map<std::string, std::string> headers;  // lower-case names
};

class RawClient {
 public:
  RawClient(asio::io_context& loop, const Endpoint& endpoint) : socket_(loop) {
    const auto address = SocketAddress::of(endpoint);
    Fd fd(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), address->get(), address->size()), 0) << std::strerror(errno);
    boost::system::error_code status;
    socket_.assign(asio::generic::stream_protocol(address->family(), 0), fd.release(), status);
    EXPECT_FALSE(status) << status.message();
  }

  asio::awaitable<bool> send(std::string bytes) {
    const auto [status, count] = co_await asio::async_write(socket_, asio::buffer(bytes), kTuple);
    co_return !status;
  }
  asio::awaitable<Answer> read(bool head_request = false) {
    beast::http::response_parser<beast::http::string_body> parser;
    parser.body_limit(64 << 20);
    parser.skip(head_request);
    const auto [status, count] = co_await beast::http::async_read(socket_, buffer_, parser, kTuple);
    Answer answer;
    if (status) co_return answer;
    answer.status = parser.get().result_int();
    answer.body = parser.get().body();
    for (const auto& field : parser.get()) {
      std::string name(field.name_string());
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = std::string(field.value());
    }
    co_return answer;
  }
  // What comes up to the mark, which is part of it.
  asio::awaitable<std::string> read_until(std::string mark) {
    std::string bytes;
    while (!bytes.ends_with(mark)) {
      char byte = 0;
      const auto [status, count] = co_await socket_.async_read_some(asio::buffer(&byte, 1), kTuple);
      if (status) break;
      bytes += byte;
    }
    co_return bytes;
  }
  // What comes until the server closes.
  asio::awaitable<std::string> read_to_end() {
    std::string bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    buffer_.clear();
    for (;;) {
      char piece[4096];
      const auto [status, count] = co_await socket_.async_read_some(asio::buffer(piece), kTuple);
      bytes.append(piece, count);
      last_status_ = status;
      if (status) co_return bytes;
    }
  }
  boost::system::error_code last_status() const { return last_status_; }
  void finish_sending() { ::shutdown(socket_.native_handle(), SHUT_WR); }
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  int fd() { return socket_.native_handle(); }

 private:
  Socket socket_;
  beast::flat_buffer buffer_;
  boost::system::error_code last_status_;
};

// A server on one Unix socket (or loopback), with the handler of the test.
class TestServer {
 public:
  explicit TestServer(Handler handler, ServerOptions options = {}, bool tcp = false) {
    endpoint = tcp ? Endpoint::tcp_at("127.0.0.1", 0)
                   : Endpoint::unix_at((folder.path() / "server.sock").string());
    server = std::make_unique<Server>(loop, std::move(options), std::move(handler));
    auto listener = listen_on(endpoint);
    EXPECT_TRUE(listener.ok()) << (listener.ok() ? "" : listener.error().message);
    if (!listener.ok()) return;
    endpoint = listener->endpoint;
    server->serve(std::move(*listener));
  }
  ~TestServer() {
    // Lets cut connections end before the test's variables do.
    server.reset();
    loop.restart();
    loop.run_for(1s);
  }
  void run(asio::awaitable<void> body) { test::run(loop, std::move(body)); }
  RawClient connect() { return RawClient(loop, endpoint); }

  TempFolder folder;
  asio::io_context loop{1};
  Endpoint endpoint;
  std::unique_ptr<Server> server;
};

// Answers "METHOD TARGET BODY".
inline asio::awaitable<void> echo(Exchange& exchange) {
  auto body = co_await exchange.read_all(Bytes(64 << 20));
  std::string text = exchange.request().method + " " + exchange.request().target + " ";
  text += body.ok() ? *body : "[" + std::string(body.error().info().name) + "]";
  ResponseHead head;
  head.headers.add("Content-Type", "text/plain");
  const auto sent = co_await exchange.respond(std::move(head), text);
  (void)sent;  // a client that left is the test's own doing
}

}  // namespace omni::http::test
