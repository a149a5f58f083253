// The HTTP/1.1 client of one I/O thread: pooled keep-alive connections per endpoint, streaming both
// ways. The strict head check of the server side holds for answers too.
//
// Errors of all calls: daemon_unreachable (no connection: nobody listens, or not within
// connect_timeout), overloaded (no descriptor or memory for one), instance_crashed (the connection
// was lost), engine_timeout (read_timeout), engine_protocol (the answer is not strict HTTP/1.1),
// cancelled (by cancel()). They name the endpoint; who knows the model adds its name.
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
  // replaced once, silently (in read_head() only when nothing followed by send_more()). Head and
  // body need to live until send_more() or read_head() has returned.
  virtual asio::awaitable<Result<void>> send(std::string_view head, std::string_view body) = 0;
  // For a body that streams: after send(head, first part). Bytes go out as they are: with
  // Transfer-Encoding: chunked the caller frames them, see encode_chunk(). When sending fails after
  // the peer has answered early (a 413), read_head() still gives that answer.
  virtual asio::awaitable<Result<void>> send_more(std::string_view data) = 0;
  // Interim answers (1xx but 101) are skipped. The headers are all that came, those of framing
  // included.
  virtual asio::awaitable<Result<ResponseHead>> read_head() = 0;
  // Next decoded body bytes, valid until the next call; empty at the end.
  virtual asio::awaitable<Result<std::string_view>> read_some() = 0;
  // Ends every pending operation with `cancelled`, from the same thread; the connection is closed.
  // (A Call is destroyed only when no operation is pending: cancel first, then let it return.)
  virtual void cancel() = 0;
  // After read_head() gave 101: the raw socket and what was read too far.
  virtual std::pair<int, std::string> release_socket() = 0;
};

struct ClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);
  std::size_t idle_per_endpoint = 256;  // 0: no connection is kept
  Duration idle_timeout = std::chrono::seconds(55);
};

class Client {
 public:
  explicit Client(asio::io_context& loop, ClientOptions options = {});
  ~Client();

  struct CallOptions {
    Duration read_timeout;                 // without a byte for so long, engine_timeout
    TimePoint expires = TimePoint::max();  // the end of the whole call
    // Never on a pooled connection, which its peer may be closing: for a request that cannot be
    // sent again at once.
    bool fresh = false;
  };
  // Takes a pooled connection or opens one at the first send().
  std::unique_ptr<Call> call(const Endpoint& endpoint, CallOptions options);

  // The simple form: a whole request and its whole answer. Host and Content-Length are added when
  // `headers` lacks them; `timeout` is for all of it.
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
// the caller's. Bytes that would break out of their place are replaced (in the target by %XX, in
// headers by a space), so that no input can add a header or a request.
class RequestHeadWriter {
 public:
  RequestHeadWriter(std::string_view method, std::string_view target);
  void add(std::string_view name, std::string_view value);
  std::string finish() &&;

 private:
  std::string head_;
};
std::string encode_head(std::string_view method, std::string_view target, const Headers& headers);
// One chunk of a chunked body; the last one for empty data.
std::string encode_chunk(std::string_view data);

}  // namespace omni::http
