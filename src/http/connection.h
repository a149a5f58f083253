// One accepted connection: reads heads, runs the handler for each, frames its answers. It is the
// Exchange that handlers see; one object serves all requests of its connection in turn.
#pragma once

#include <boost/asio/cancellation_signal.hpp>
#include <boost/intrusive/list.hpp>
#include <memory>

#include "http/body_decoder.h"
#include "http/deadlines.h"
#include "http/head_writer.h"
#include "http/server.h"
#include "http/stream.h"
#include "http/strict_head.h"

namespace omni::http {

struct AllTag;
struct IdleTag;
template <typename Tag>
using ConnectionHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

struct ServerContext;

class Connection final : public Exchange,
                         public std::enable_shared_from_this<Connection>,
                         private Stream::PeerListener,
                         public ConnectionHook<AllTag>,
                         public ConnectionHook<IdleTag> {
 public:
  // `server`: shared by all of its connections, which may outlive the Server by a moment.
  Connection(std::shared_ptr<ServerContext> server, bool from_unix_socket);
  ~Connection() override;

  // Starts serving an accepted socket; the connection owns itself until it ends.
  static void accept(std::shared_ptr<ServerContext> server, Fd socket, int family);
  // For one that waits for its next request. `close_idle`: one that has arrived is served first.
  void close_idle();
  void shed() { stream_.close(); }
  // Ends it at once, and the handler's coroutine at its next await.
  void cut();

  const RequestHead& request() const override { return request_; }
  bool from_unix_socket() const override { return from_unix_socket_; }
  TimePoint received() const override { return received_; }
  asio::awaitable<Result<std::string_view>> read_some() override;
  asio::awaitable<Result<std::string>> read_all(Bytes limit) override;
  asio::awaitable<Result<void>> respond(ResponseHead head, std::string_view body) override;
  asio::awaitable<Result<void>> start(ResponseHead head, bool flush) override;
  asio::awaitable<Result<void>> write(std::string_view data) override;
  asio::awaitable<Result<void>> finish() override;
  void abort() override;
  bool started() const override { return started_; }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  bool client_gone() const override;
  void on_client_gone(std::function<void()> callback) override;
  asio::awaitable<Result<Upgraded>> upgrade(ResponseHead head) override;

 private:
  asio::awaitable<void> run();
  asio::awaitable<bool> read_head();
  asio::awaitable<IoResult> await_head_bytes(TimePoint& first_byte);
  asio::awaitable<void> refuse(Error error);
  asio::awaitable<void> serve();
  asio::awaitable<void> respond_with_error(Error error);
  asio::awaitable<bool> skip_rest_of_body();
  asio::awaitable<void> close_gently();

  void begin_exchange();
  // Settles how the answer is framed and puts its head into out_.
  Result<void> begin_response(const ResponseHead& head, bool upgrade = false);
  bool body_rest_is_small() const;
  asio::awaitable<Result<void>> send_continue();
  asio::awaitable<Result<void>> send(Gather parts);
  asio::awaitable<Result<void>> send_rest(Gather parts, IoResult result);
  Error write_error(IoResult result);
  Error read_error(IoResult result);

  void on_peer_gone(Stream& stream) override;

  std::shared_ptr<ServerContext> server_;
  const bool from_unix_socket_;
  Stream stream_;
  asio::cancellation_signal cancel_;
  bool cut_ = false;

  // The request.
  HeadScanner scanner_;
  RequestHead request_;
  TimePoint received_{};
  BodyDecoder body_;
  std::size_t lent_ = 0;  // bytes of the input that the last read_some() gave out
  bool continue_due_ = false;

  // The answer.
  std::string out_;  // a head or chunk size on its way
  bool started_ = false;
  bool finished_ = false;
  bool head_held_ = false;      // out_ is the head, not yet sent
  bool body_expected_ = false;  // false for HEAD, 204, 304
  ResponseFraming framing_;
  std::uint64_t bytes_sent_ = 0;

  bool keep_alive_ = true;
  bool upgraded_ = false;
  bool broken_ = false;  // a write failed, or the answer was aborted
  bool client_gone_ = false;
  std::function<void()> on_client_gone_;
};

// What the connections of one Server share.
struct ServerContext {
  ServerContext(asio::io_context& event_loop, ServerOptions server_options, Handler on_request)
      : loop(event_loop),
        options(std::move(server_options)),
        handler(std::move(on_request)),
        deadlines(std::make_shared<Deadlines>(event_loop)),
        ended(event_loop) {}

  template <typename Tag>
  using List = boost::intrusive::list<Connection, boost::intrusive::base_hook<ConnectionHook<Tag>>,
                                      boost::intrusive::constant_time_size<false>>;

  asio::io_context& loop;
  const ServerOptions options;
  const Handler handler;
  const std::shared_ptr<Deadlines> deadlines;  // shared with its entries
  DateLine date;
  bool draining = false;
  List<AllTag> all;
  List<IdleTag> idle;  // waiting for a first byte; longest first
  std::size_t connections = 0;
  std::size_t exchanges = 0;
  asio::steady_timer ended;  // cancelled when the last connection ends
};

}  // namespace omni::http
