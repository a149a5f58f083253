#include "http/client_call.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <system_error>

#include "http/socket_address.h"

namespace omni::http {
namespace {

constexpr std::size_t kResponseHeadLimit = 64 * 1024;
// A Unix socket whose backlog is full says so at once instead of waiting.
constexpr Duration kConnectRetry = std::chrono::milliseconds(5);

bool is_lost(IoResult result) {
  return result.kind == IoResult::Kind::eof ||
         (result.kind == IoResult::Kind::failed &&
          (result.error == EPIPE || result.error == ECONNRESET));
}

// Nothing that the peer could be blamed for.
bool is_own_shortage(IoResult result) {
  return result.kind == IoResult::Kind::failed &&
         (result.error == EMFILE || result.error == ENFILE || result.error == ENOMEM ||
          result.error == ENOBUFS || result.error == ENOSPC);
}

}  // namespace

ClientCall::ClientCall(std::shared_ptr<ClientContext> client, const Endpoint& endpoint,
                       Client::CallOptions options)
    : client_(std::move(client)), lane_(client_->pool.lane(endpoint)), options_(options) {}

ClientCall::~ClientCall() {
  if (stream_ && reusable()) client_->pool.give(*lane_, std::move(stream_));
}

// The answer has ended, nothing follows it, and both sides want to go on.
bool ClientCall::reusable() {
  if (!have_head_ || broken_ || cancelled_ || !response_.keep_alive) return false;
  InputBuffer& input = stream_->input();
  input.consume(std::exchange(lent_, 0));
  if (!body_.done()) {
    // The end of a chunked body may be here already, unasked for.
    const auto step = body_.next(input.view());
    if (!step.ok() || !step->data.empty()) return false;
    input.consume(step->skipped);
  }
  return body_.done() && input.empty();
}

TimePoint ClientCall::read_deadline() const {
  return std::min(Clock::now() + options_.read_timeout, options_.expires);
}

Error ClientCall::error_of(IoResult result) const {
  const std::string where = to_string(lane_->endpoint);
  if (cancelled_) return {ErrorCode::cancelled, "the request to " + where + " was cancelled"};
  switch (result.kind) {
    case IoResult::Kind::timeout:
      return {ErrorCode::engine_timeout,
              fmt::format("{} sent nothing for {}", where, to_string(options_.read_timeout))};
    case IoResult::Kind::failed:
      return {ErrorCode::instance_crashed,
              fmt::format("the connection to {} was lost: {}", where,
                          std::generic_category().message(result.error))};
    default:
      return {ErrorCode::instance_crashed,
              fmt::format("{} closed the connection {}", where,
                          have_head_ ? "before the end of its answer" : "before answering")};
  }
}

// ---- connecting

asio::awaitable<IoResult> ClientCall::connect_stream(const SocketAddress& address,
                                                     TimePoint deadline) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) co_return IoResult{IoResult::Kind::failed, errno};
  if (address.family() != AF_UNIX) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  int error = ::connect(socket.get(), address.get(), address.size()) == 0 ? 0 : errno;
  while (error == EAGAIN) {
    if (Clock::now() >= deadline) co_return IoResult{IoResult::Kind::timeout};
    asio::steady_timer pause(client_->loop, kConnectRetry);
    constexpr auto token = asio::as_tuple(asio::use_awaitable);
    co_await pause.async_wait(token);
    if (cancelled_) co_return IoResult{IoResult::Kind::closed};
    error = ::connect(socket.get(), address.get(), address.size()) == 0 ? 0 : errno;
  }
  if (error != 0 && error != EINPROGRESS) co_return IoResult{IoResult::Kind::failed, error};
  const IoResult opened = stream_->open(std::move(socket), address.family());
  if (!opened.ok() || error == 0) co_return opened;
  const IoResult connected = co_await stream_->wait_connected(deadline);
  co_return connected;
}

asio::awaitable<Result<void>> ClientCall::connect() {
  CO_TRY(const SocketAddress address, SocketAddress::of(lane_->endpoint));
  stream_ = std::make_unique<Stream>(client_->loop, *client_->deadlines);
  pooled_ = false;
  const Duration timeout = client_->options.connect_timeout;
  const TimePoint deadline = std::min(Clock::now() + timeout, options_.expires);
  const IoResult connected = co_await connect_stream(address, deadline);
  if (connected.ok()) co_return Result<void>();
  broken_ = true;
  if (cancelled_) co_return error_of(connected);
  if (is_own_shortage(connected)) {
    co_return Error{ErrorCode::overloaded,
                    fmt::format("no connection to {}: {}", to_string(lane_->endpoint),
                                std::generic_category().message(connected.error))};
  }
  const std::string reason = connected.kind == IoResult::Kind::failed
                                 ? std::generic_category().message(connected.error)
                                 : "no connection within " + to_string(timeout);
  co_return Error{ErrorCode::daemon_unreachable,
                  fmt::format("cannot connect to {}: {}", to_string(lane_->endpoint), reason)};
}

// ---- the request

asio::awaitable<Result<void>> ClientCall::send(std::string_view head, std::string_view body) {
  if (cancelled_) co_return error_of({IoResult::Kind::closed});
  head_request_ = head.starts_with("HEAD ");
  if (!options_.fresh) stream_ = client_->pool.take(*lane_);
  pooled_ = stream_ != nullptr;
  if (!stream_) CO_CHECK(co_await connect());
  Gather parts;
  parts.add(head);
  parts.add(body);
  if (pooled_) replay_ = parts;
  IoResult result = write_now(parts);
  if (result.would_block()) result = co_await stream_->write_rest(parts, options_.read_timeout);
  if (pooled_ && is_lost(result) && !cancelled_) {
    if (stream_->receive().ok()) {
      // It has refused the request before it had all of it: what it said is to be read.
      progress_ = Progress::first_byte;
    } else {
      // It closed the connection while that was idle, a moment too late for take() to see.
      CO_CHECK(co_await connect());
      result = co_await write(replay_);
    }
  }
  co_return outcome(result);
}

asio::awaitable<Result<void>> ClientCall::send_more(std::string_view data) {
  // From here on only the caller could send everything again.
  replay_ = {};
  Gather parts;
  parts.add(data);
  const IoResult result = co_await write(parts);
  co_return outcome(result);
}

IoResult ClientCall::write_now(Gather& parts) {
  const IoResult result = stream_->write_now(parts);
  if (result.ok() || result.would_block()) progress_ = Progress::sent;
  return result;
}

asio::awaitable<IoResult> ClientCall::write(Gather parts) {
  IoResult result = write_now(parts);
  if (result.would_block()) result = co_await stream_->write_rest(parts, options_.read_timeout);
  co_return result;
}

Result<void> ClientCall::outcome(IoResult result) {
  if (result.ok()) return {};
  broken_ = true;
  return error_of(result);
}

// ---- the answer

asio::awaitable<Result<std::size_t>> ClientCall::await_head() {
  for (;;) {
    InputBuffer& input = stream_->input();
    if (!input.empty()) {
      const auto length = scanner_.scan(input.view(), kResponseHeadLimit);
      if (!length.ok()) {
        co_return Error{ErrorCode::engine_protocol,
                        "the answer is malformed: " + length.error().message};
      }
      if (*length > 0) co_return *length;
    }
    IoResult result = stream_->fill_now();
    if (result.would_block()) result = co_await stream_->fill(read_deadline());
    if (result.ok()) {
      progress_ = Progress::first_byte;
      continue;
    }
    const bool stale = pooled_ && !replay_.empty() && progress_ == Progress::sent &&
                       is_lost(result) && !cancelled_;
    if (!stale) co_return error_of(result);
    scanner_.reset();
    CO_CHECK(co_await connect());
    const IoResult sent = co_await write(replay_);
    if (!sent.ok()) co_return error_of(sent);
  }
}

asio::awaitable<Result<ResponseHead>> ClientCall::read_head() {
  assert(!have_head_);
  if (!stream_ || cancelled_) co_return error_of({IoResult::Kind::closed});
  for (;;) {
    const auto length = co_await await_head();
    if (!length.ok()) {
      broken_ = true;
      co_return length.error();
    }
    InputBuffer& input = stream_->input();
    const auto parsed = parse_response_head(input.view().substr(0, *length), response_);
    if (!parsed.ok()) {
      broken_ = true;
      co_return parsed.error();
    }
    input.consume(*length);
    scanner_.reset();
    if (response_.head.status >= 200 || response_.head.status == 101) break;
  }
  have_head_ = true;
  begin_body();
  co_return std::move(response_.head);
}

void ClientCall::begin_body() {
  const ResponseHead& head = response_.head;
  if (head_request_ || head.status == 204 || head.status == 304 || head.status == 101) {
    body_.reset_length(0);
  } else if (response_.chunked) {
    body_.reset_chunked();
  } else if (head.content_length) {
    body_.reset_length(*head.content_length);
  } else {
    body_.reset_until_close();
    response_.keep_alive = false;
  }
}

asio::awaitable<Result<std::string_view>> ClientCall::read_some() {
  assert(have_head_ && "read_head() comes first");
  if (cancelled_) co_return error_of({IoResult::Kind::closed});
  InputBuffer& input = stream_->input();
  for (;;) {
    input.consume(std::exchange(lent_, 0));
    const auto step = body_.next(input.view());
    if (!step.ok()) {
      broken_ = true;
      co_return Error{ErrorCode::engine_protocol,
                      "the answer is malformed: " + step.error().message};
    }
    input.consume(step->skipped);
    if (!step->data.empty()) {
      lent_ = step->data.size();
      co_return step->data;
    }
    if (body_.done()) co_return std::string_view();
    IoResult result = stream_->fill_now();
    if (result.would_block()) result = co_await stream_->fill(read_deadline());
    if (result.ok()) continue;
    if (result.kind == IoResult::Kind::eof && body_.finish_at_close()) {
      co_return std::string_view();
    }
    broken_ = true;
    co_return error_of(result);
  }
}

void ClientCall::cancel() {
  cancelled_ = true;
  if (stream_) stream_->close();
}

std::pair<int, std::string> ClientCall::release_socket() {
  assert(have_head_ && response_.head.status == 101);
  std::string read_ahead(stream_->input().view());
  const int socket = stream_->release().release();
  stream_.reset();
  return {socket, std::move(read_ahead)};
}

}  // namespace omni::http
