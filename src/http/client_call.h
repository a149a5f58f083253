// One request of the client, from its connection to the end of its answer.
#pragma once

#include <memory>
#include <string>

#include "http/body_decoder.h"
#include "http/client.h"
#include "http/connection_pool.h"
#include "http/socket_address.h"
#include "http/stream.h"
#include "http/strict_head.h"

namespace omni::http {

// What the calls of one Client share; they may outlive it.
struct ClientContext {
  ClientContext(asio::io_context& event_loop, ClientOptions client_options)
      : loop(event_loop),
        options(client_options),
        deadlines(std::make_shared<Deadlines>(event_loop)),
        pool(*deadlines, options) {}

  asio::io_context& loop;
  const ClientOptions options;
  const std::shared_ptr<Deadlines> deadlines;  // shared with its entries
  ConnectionPool pool;
};

class ClientCall final : public Call {
 public:
  ClientCall(std::shared_ptr<ClientContext> client, const Endpoint& endpoint,
             Client::CallOptions options);
  ~ClientCall() override;

  Progress progress() const override { return progress_; }
  asio::awaitable<Result<void>> send(std::string_view head, std::string_view body) override;
  asio::awaitable<Result<void>> send_more(std::string_view data) override;
  asio::awaitable<Result<ResponseHead>> read_head() override;
  asio::awaitable<Result<std::string_view>> read_some() override;
  void cancel() override;
  std::pair<int, std::string> release_socket() override;

 private:
  asio::awaitable<Result<void>> connect();
  asio::awaitable<IoResult> connect_stream(const SocketAddress& address, TimePoint deadline);
  IoResult write_now(Gather& parts);
  asio::awaitable<IoResult> write(Gather parts);
  // Until a whole head is in the buffer: its length.
  asio::awaitable<Result<std::size_t>> await_head();
  void begin_body();
  bool reusable();
  Error error_of(IoResult result) const;
  Result<void> outcome(IoResult result);  // of a write
  TimePoint read_deadline() const;

  std::shared_ptr<ClientContext> client_;
  std::shared_ptr<ConnectionPool::Lane> lane_;
  const Client::CallOptions options_;
  std::unique_ptr<Stream> stream_;
  Progress progress_ = Progress::nothing_sent;
  bool cancelled_ = false;

  // The request.
  bool pooled_ = false;  // on a connection that served others before
  bool head_request_ = false;
  Gather replay_;        // what was sent on a pooled connection, to send it again when it is stale
  bool broken_ = false;  // an operation failed: the connection is of no further use

  // The answer.
  HeadScanner scanner_;
  ParsedResponse response_;
  bool have_head_ = false;
  BodyDecoder body_;
  std::size_t lent_ = 0;  // bytes of the input that the last read_some() gave out
};

}  // namespace omni::http
