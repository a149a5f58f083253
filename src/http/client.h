// The HTTP/1.1 client of one I/O thread: pooled keep-alive connections per endpoint, streaming both
// ways.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/result.h"
#include "http/message.h"

namespace omni::http {

namespace asio = boost::asio;

struct Response {
  int status = 0;
  Headers headers;
  std::string body;
};

// How far a failed call got: what a replay needs to know.
enum class Progress : std::uint8_t {
  nothing_sent,  // no connection, or a pooled one that was stale: always safe to repeat
  sent,          // request bytes went out, no byte of the answer came
  first_byte,    // the answer began
};

// One request on one connection. Destroying it before the answer's end closes the connection, which
// is how an engine learns that its client left; after the end it goes back to the pool.
class Call {
 public:
  virtual ~Call() = default;

  virtual Progress progress() const = 0;
  // Sends head and body in one gathered write. `head` is complete raw bytes ("POST ... \r\n\r\n"),
  // see encode_head(). A pooled connection that turns out stale before any byte of the answer is
  // replaced once, silently.
  virtual asio::awaitable<Result<void>> send(std::string_view head, std::string_view body) = 0;
  // For a body that streams: after send(head, first part).
  virtual asio::awaitable<Result<void>> send_more(std::string_view data) = 0;
  virtual asio::awaitable<Result<ResponseHead>> read_head() = 0;
  // Next decoded body bytes, valid until the next call; empty at the end.
  virtual asio::awaitable<Result<std::string_view>> read_some() = 0;
  // Ends every pending operation with `cancelled`, from the same thread; the connection is closed.
  virtual void cancel() = 0;
  // After read_head() gave 101: the raw socket and what was read too far.
  virtual std::pair<int, std::string> release_socket() = 0;
};

struct ClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);
  std::size_t idle_per_endpoint = 256;
  Duration idle_timeout = std::chrono::seconds(55);
};

class Client {
 public:
  explicit Client(asio::io_context& loop, ClientOptions options = {});
  ~Client();

  // Takes a pooled connection or opens one at the first send(). `read_timeout`: without a byte for
  // so long, engine_timeout.
  std::unique_ptr<Call> call(const Endpoint& endpoint, Duration read_timeout);

  // The simple form: a whole request and its whole answer.
  asio::awaitable<Result<Response>> request(const Endpoint& endpoint, std::string_view method,
                                            std::string_view target, Headers headers,
                                            std::string_view body, Duration timeout,
                                            Bytes limit = Bytes(16 << 20));
  // Closes idle connections to an endpoint: before its instance is told to stop.
  void close_idle(const Endpoint& endpoint);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Request line, headers and the blank line. Adds nothing: Host, Content-Length and Connection are
// the caller's.
std::string encode_head(std::string_view method, std::string_view target, const Headers& headers);

}  // namespace omni::http
