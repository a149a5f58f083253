// The HTTP/1.1 server of one I/O thread: accepts, reads and checks heads, and hands each request to
// one handler as an Exchange.
//
// Rules (docs/contracts/head-validation.md): a strict head parser (strict_head.h); keep-alive and
// pipelining; 100-continue sent when the handler first reads the body; HEAD answers carry no body;
// a connection whose request body was not read to its end is closed after the answer (small rests
// are drained).
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
  // Errors: cancelled (the client left), request_timeout, invalid_request (malformed chunks).
  virtual asio::awaitable<Result<std::string_view>> read_some() = 0;
  // The whole rest. More than `limit` bytes: body_too_large, naming the limit.
  virtual asio::awaitable<Result<std::string>> read_all(Bytes limit) = 0;

  // ---- answer: respond(), or start() write()* finish()
  // Framing is the server's: Content-Length, Transfer-Encoding, Connection and Keep-Alive fields of
  // `head` are dropped, a length is given as head.content_length. A name or value that would break
  // out of its line is refused (internal) and nothing is sent: another answer can follow. A client
  // that left or reads nothing is `cancelled`.
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
  virtual bool started() const = 0;              // start() or respond() was called
  virtual std::uint64_t bytes_sent() const = 0;  // of the answer's body

  // ---- the client leaving
  // The peer closed or half-closed, also behind pipelined bytes, as of the loop's last turn.
  virtual bool client_gone() const = 0;
  // Called once on this thread when the client is gone; an empty function takes it back. The
  // handler sets it around a wait (queue, engine); it ends with the exchange.
  virtual void on_client_gone(std::function<void()> callback) = 0;

  // Takes the connection over after a 101: raw bytes both ways, starting with what was read too
  // far.
  struct Upgraded {
    Fd socket;
    std::string read_ahead;
  };
  virtual asio::awaitable<Result<Upgraded>> upgrade(ResponseHead head) = 0;
};

// An exception that leaves it is logged and costs its client a 500 (or a broken answer, when one
// had begun). So does returning without an answer.
using Handler = std::function<asio::awaitable<void>(Exchange&)>;

struct Refusal {
  ResponseHead head;  // its status is the error's
  std::string body;
};

struct ServerOptions {
  std::size_t head_limit = 32 * 1024;
  Duration header_timeout = std::chrono::seconds(15);  // first byte of a head to its end
  Duration idle_timeout = std::chrono::seconds(75);    // between requests
  Duration body_idle_timeout = std::chrono::seconds(60);
  Duration write_timeout = std::chrono::seconds(60);  // a client that reads nothing
  // At the cap the connection idle for longest makes room; without one newcomers wait in the
  // kernel's queue.
  std::size_t max_connections = 10'000;
  // The answer to what no handler sees: a head that is refused, a handler that failed.
  std::function<Refusal(const Error&)> refuse;
};

// A bound, listening socket. A Unix socket file that nobody listens on is replaced, a live one is
// already_running; the file stays when the daemon ends. The first TCP listener of an address binds
// without SO_REUSEPORT, so that a second daemon is refused (already_running); then the option is
// set, for the other threads' listeners.
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
  // Drains; ends when no connection is left or at the deadline, when the rest is cut: sockets close
  // and the handlers' coroutines are cancelled (their next co_await throws operation_aborted). To
  // be awaited before anything that handlers use is destroyed.
  asio::awaitable<void> stop(TimePoint deadline);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace omni::http
