// The HTTP/1.1 server of one I/O thread: accepts, reads and checks heads, and hands each request to
// one handler as an Exchange. Beast stays behind this header.
//
// Rules (docs/contracts/head-validation.md): a strict check of the raw head before the parser sees
// it; keep-alive and pipelining; 100-continue sent when the handler first reads the body; HEAD
// answers carry no body; a connection whose request body was not read to its end is closed after
// the answer (small rests are drained).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/result.h"
#include "http/message.h"

namespace omni::http {

namespace asio = boost::asio;

// One request and its answer. Lives on its connection's I/O thread, for the time of the handler's
// coroutine.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const RequestHead& request() const = 0;
  // Where it came in: true for the admin socket.
  virtual bool from_unix_socket() const = 0;
  virtual TimePoint received() const = 0;  // when the head was complete

  // ---- request body
  // The next bytes of the decoded body, valid until the next call; empty at its end. Views into the
  // connection's buffer: nothing is copied.
  virtual asio::awaitable<Result<std::string_view>> read_some() = 0;
  // The whole rest. More than `limit` bytes: body_too_large, naming the limit.
  virtual asio::awaitable<Result<std::string>> read_all(Bytes limit) = 0;

  // ---- answer: respond(), or start() write()* finish()
  virtual asio::awaitable<Result<void>> respond(ResponseHead head, std::string_view body) = 0;
  // Holds the head back until the first write() or finish(), so that both go out in one system
  // call. `flush`: send it now (a stream's head before its first event).
  virtual asio::awaitable<Result<void>> start(ResponseHead head, bool flush = false) = 0;
  // The bytes go out before it returns; framed as a chunk when the head has no length.
  virtual asio::awaitable<Result<void>> write(std::string_view data) = 0;
  virtual asio::awaitable<Result<void>> finish() = 0;
  // The answer cannot be completed: the connection is closed without its end, so that the client
  // sees a broken message and not a short one.
  virtual void abort() = 0;
  virtual bool started() const = 0;  // start() or respond() was called
  virtual std::uint64_t bytes_sent() const = 0;

  // ---- the client leaving
  // The peer closed or half-closed. Kept fresh by a sweep of poll(POLLRDHUP) over watched
  // exchanges, every 25 ms, also behind pipelined bytes.
  virtual bool client_gone() const = 0;
  // Called once on this thread when the sweep finds the client gone; an empty function takes it
  // back. The handler sets it around a wait (queue, engine).
  virtual void on_client_gone(std::function<void()> callback) = 0;

  // Takes the connection over after a 101: raw bytes both ways, starting with what was read too
  // far.
  struct Upgraded {
    Fd socket;
    std::string read_ahead;
  };
  virtual asio::awaitable<Result<Upgraded>> upgrade(ResponseHead head) = 0;
};

using Handler = std::function<asio::awaitable<void>(Exchange&)>;

struct ServerOptions {
  std::size_t head_limit = 32 * 1024;
  Duration header_timeout = std::chrono::seconds(15);  // first byte of a head to its end
  Duration idle_timeout = std::chrono::seconds(75);    // between requests
  Duration body_idle_timeout = std::chrono::seconds(60);
  Duration write_timeout = std::chrono::seconds(60);  // a client that reads nothing
  std::size_t max_connections = 10'000;
  // Renders an error found before the handler runs (bad head, timeout). Returns body and content
  // type.
  std::function<std::pair<std::string, std::string>(const Error&)> render_error;
};

// A bound, listening socket. The first TCP listener of an address binds without SO_REUSEPORT, so
// that a second daemon is refused (already_running); then the option is set, for the other threads'
// listeners.
struct Listener {
  Fd socket;
  Endpoint endpoint;  // with the real port when 0 was asked for
};
Result<Listener> listen_on(const Endpoint& endpoint, int unix_mode = 0600);
Result<Listener> listen_beside(const Listener& first);  // another thread's, SO_REUSEPORT

class Server {
 public:
  Server(asio::io_context& loop, ServerOptions options, Handler handler);
  ~Server();

  void serve(Listener listener);
  std::size_t connections() const;
  std::size_t active_exchanges() const;
  // No new connection or request; idle connections close, running exchanges go on, their
  // connections close after them (Connection: close).
  void drain();
  // Ends when no exchange is left or at the deadline, when the rest is cut.
  asio::awaitable<void> stop(TimePoint deadline);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace omni::http
