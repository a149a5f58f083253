#include "http/connection.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <system_error>

namespace omni::http {
namespace {

// A body rest up to this is read and dropped to keep the connection; a larger one costs more than a
// new connection.
constexpr std::uint64_t kSkippedBody = 64 * 1024;
// A client that is told to stop has this long to read it and close.
constexpr Duration kLinger = std::chrono::seconds(2);

void log_unless_cancelled(std::exception_ptr failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) return;
    spdlog::error("connection ended: {}", error.what());
  } catch (const std::exception& error) {
    spdlog::error("connection ended: {}", error.what());
  }
}

Refusal refusal(const ServerOptions& options, const Error& error) {
  if (options.refuse) return options.refuse(error);
  Refusal plain;
  plain.head.headers.add("Content-Type", "text/plain; charset=utf-8");
  plain.body = error.message + "\n";
  return plain;
}

}  // namespace

Connection::Connection(std::shared_ptr<ServerContext> server, bool from_unix_socket)
    : server_(std::move(server)),
      from_unix_socket_(from_unix_socket),
      stream_(server_->loop, *server_->deadlines) {
  server_->all.push_back(*this);
  ++server_->connections;
}

Connection::~Connection() {
  if (--server_->connections == 0) server_->ended.cancel();
}

void Connection::accept(std::shared_ptr<ServerContext> server, Fd socket, int family) {
  asio::io_context& loop = server->loop;
  // Shared by the coroutine's two ends: it runs in one, the other takes its outcome.
  auto self = std::make_shared<Connection>(std::move(server), family == AF_UNIX);
  const IoResult opened = self->stream_.open(std::move(socket), family);
  if (!opened.ok()) {
    spdlog::error("cannot serve a connection: {}", std::generic_category().message(opened.error));
    return;
  }
  asio::co_spawn(
      loop.get_executor(), self->run(),
      asio::bind_cancellation_slot(self->cancel_.slot(), [self](std::exception_ptr failure) {
        log_unless_cancelled(failure);
      }));
}

void Connection::close_idle() {
  // A request that has arrived but was not noticed yet is served: nothing told its client not to
  // send it. The pending read finds its bytes.
  char byte = 0;
  if (::recv(stream_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) return;
  stream_.close();
}

void Connection::cut() {
  cut_ = true;
  stream_.close();
  // Inside the loop: from outside of it, emit() only posts a pointer into the signal, which the
  // connection's end may make stale before it is used.
  asio::dispatch(server_->loop, [self = shared_from_this()] {
    self->cancel_.emit(asio::cancellation_type::terminal);
  });
}

asio::awaitable<void> Connection::run() {
  for (;;) {
    const bool have_request = co_await read_head();
    if (!have_request) break;
    co_await serve();
    if (upgraded_ || cut_ || broken_ || client_gone_) break;
    const bool body_done = co_await skip_rest_of_body();
    if (!body_done || !keep_alive_) {
      co_await close_gently();
      break;
    }
    stream_.input().shrink();
  }
  stream_.close();
}

// ---- request head

asio::awaitable<bool> Connection::read_head() {
  scanner_.reset();
  TimePoint first_byte{};
  InputBuffer& input = stream_.input();
  std::size_t length = 0;
  for (;;) {
    // RFC 9112, 2.2: an empty line before a request line is skipped; old clients end bodies so.
    if (input.view().starts_with("\r\n")) input.consume(2);
    if (!input.empty()) {
      const auto scanned = scanner_.scan(input.view(), server_->options.head_limit);
      if (!scanned.ok()) {
        co_await refuse(scanned.error());
        co_return false;
      }
      length = *scanned;
      if (length > 0) break;
    }
    const IoResult result = co_await await_head_bytes(first_byte);
    if (result.kind == IoResult::Kind::timeout && first_byte != TimePoint{}) {
      Error late{ErrorCode::request_timeout,
                 fmt::format("the request head did not arrive within {}",
                             to_string(server_->options.header_timeout))};
      co_await refuse(std::move(late));
    }
    if (!result.ok()) co_return false;
  }
  const auto parsed = parse_request_head(input.view().substr(0, length), request_);
  if (!parsed.ok()) {
    co_await refuse(parsed.error());
    co_return false;
  }
  input.consume(length);
  begin_exchange();
  co_return true;
}

asio::awaitable<IoResult> Connection::await_head_bytes(TimePoint& first_byte) {
  const TimePoint now = Clock::now();
  if (!stream_.input().empty()) {
    if (first_byte == TimePoint{}) first_byte = now;
    IoResult result = stream_.fill_now();
    if (result.would_block()) {
      result = co_await stream_.fill(first_byte + server_->options.header_timeout);
    }
    co_return result;
  }
  if (server_->draining) co_return IoResult{IoResult::Kind::closed};
  IoResult result = stream_.fill_now();
  if (!result.would_block()) co_return result;
  server_->idle.push_back(*this);
  result = co_await stream_.fill(now + server_->options.idle_timeout);
  ConnectionHook<IdleTag>::unlink();
  co_return result;
}

asio::awaitable<void> Connection::refuse(Error error) {
  request_ = {};
  request_.keep_alive = false;
  begin_exchange();
  // Where the next message would begin is unknown: the rest of the connection is unread body.
  body_.reset_until_close();
  co_await respond_with_error(std::move(error));
  co_await close_gently();
}

void Connection::begin_exchange() {
  received_ = Clock::now();
  if (request_.chunked) {
    body_.reset_chunked();
  } else {
    body_.reset_length(request_.content_length.value_or(0));
  }
  lent_ = 0;
  keep_alive_ = request_.keep_alive;
  continue_due_ = request_.expect_continue && request_.has_body();
  started_ = finished_ = head_held_ = false;
  bytes_sent_ = 0;
}

// ---- the handler

asio::awaitable<void> Connection::serve() {
  struct Counted {
    explicit Counted(std::size_t& counter) : count(counter) { ++count; }
    ~Counted() { --count; }
    std::size_t& count;
  };
  const Counted counted(server_->exchanges);
  std::string failure;
  try {
    co_await server_->handler(*this);
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "an exception of unknown type";
  }
  on_client_gone({});
  if (cut_ || upgraded_ || finished_) co_return;
  if (failure.empty() && !broken_) failure = "it returned without finishing the answer";
  if (!failure.empty() && !client_gone_) {
    spdlog::error("handler of {} {}: {}", request_.method, request_.path(), failure);
  }
  if (started_ || broken_) {
    abort();
    co_return;
  }
  Error internal{ErrorCode::internal,
                 "the request handler failed; the daemon's log has the reason"};
  co_await respond_with_error(std::move(internal));
}

asio::awaitable<void> Connection::respond_with_error(Error error) {
  Refusal answer = refusal(server_->options, error);
  answer.head.status = error.info().http_status;
  const auto sent = co_await respond(std::move(answer.head), answer.body);
  // Not delivered: the client is gone, and there is nobody else to tell.
  if (!sent.ok()) broken_ = true;
}

// ---- request body

asio::awaitable<Result<std::string_view>> Connection::read_some() {
  InputBuffer& input = stream_.input();
  for (;;) {
    input.consume(std::exchange(lent_, 0));
    const auto step = body_.next(input.view());
    if (!step.ok()) {
      keep_alive_ = false;
      co_return step.error();
    }
    input.consume(step->skipped);
    if (!step->data.empty()) {
      lent_ = step->data.size();
      co_return step->data;
    }
    if (body_.done()) co_return std::string_view();
    if (continue_due_) {
      auto invited = co_await send_continue();
      if (!invited.ok()) co_return std::move(invited).error();
    }
    IoResult result = stream_.fill_now();
    if (result.would_block()) {
      result = co_await stream_.fill(Clock::now() + server_->options.body_idle_timeout);
    }
    if (!result.ok()) co_return read_error(result);
  }
}

asio::awaitable<Result<std::string>> Connection::read_all(Bytes limit) {
  const auto room = static_cast<std::uint64_t>(std::max<std::int64_t>(limit.count(), 0));
  const Error too_large{ErrorCode::body_too_large,
                        fmt::format("the request body is larger than {}", to_string(limit))};
  if (body_.remaining().value_or(0) > room) co_return too_large;
  std::string body;
  body.reserve(static_cast<std::size_t>(body_.remaining().value_or(0)));
  for (;;) {
    const auto piece = co_await read_some();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return body;
    if (piece->size() > room - body.size()) co_return too_large;
    body += *piece;
  }
}

asio::awaitable<Result<void>> Connection::send_continue() {
  continue_due_ = false;
  if (started_) co_return Result<void>();
  Gather parts;
  parts.add("HTTP/1.1 100 Continue\r\n\r\n");
  auto sent = co_await send(parts);
  co_return sent;
}

Error Connection::read_error(IoResult result) {
  keep_alive_ = false;  // and no second wait for the rest
  if (result.kind == IoResult::Kind::timeout) {
    return {ErrorCode::request_timeout, fmt::format("no byte of the request body came within {}",
                                                    to_string(server_->options.body_idle_timeout))};
  }
  client_gone_ = true;
  return {ErrorCode::cancelled, "the client closed the connection before the end of its request"};
}

bool Connection::body_rest_is_small() const {
  if (body_.done()) return true;
  // A client that was not told to continue may send the body or not: it cannot be skipped.
  return !continue_due_ && body_.remaining().value_or(kSkippedBody + 1) <= kSkippedBody;
}

asio::awaitable<bool> Connection::skip_rest_of_body() {
  if (!body_.done() && !keep_alive_) co_return false;
  std::uint64_t skipped = 0;
  while (skipped <= kSkippedBody) {
    const auto piece = co_await read_some();
    if (!piece.ok()) co_return false;
    if (piece->empty()) co_return true;
    skipped += piece->size();
  }
  co_return false;
}

// ---- answer

Result<void> Connection::begin_response(const ResponseHead& head, bool upgrade) {
  assert(!started_ && "an exchange has one answer");
  const bool no_content = head.status < 200 || head.status == 204;
  body_expected_ = !no_content && head.status != 304 && request_.method != "HEAD";
  framing_ = {};
  if (!no_content) framing_.content_length = head.content_length;
  framing_.chunked = body_expected_ && !head.content_length && !request_.http_1_0;
  framing_.to_http_1_0 = request_.http_1_0;
  framing_.upgrade = upgrade;
  const bool until_close = body_expected_ && !head.content_length && request_.http_1_0;
  // What has been read of a chunked body may hold its end: then the connection can be kept.
  framing_.keep_alive = keep_alive_ && !server_->draining && !until_close && body_rest_is_small();
  out_.clear();
  CHECK(append_response_head(head, framing_, server_->date, out_));
  keep_alive_ = framing_.keep_alive;
  started_ = true;
  return {};
}

asio::awaitable<Result<void>> Connection::respond(ResponseHead head, std::string_view body) {
  if (head.status != 304 && !head.content_length) head.content_length = body.size();
  CO_CHECK(begin_response(head));
  Gather parts;
  parts.add(out_);
  if (body_expected_) {
    if (*framing_.content_length != body.size()) {
      abort();
      co_return Error{ErrorCode::internal, "the answer's Content-Length is not that of its body"};
    }
    parts.add(body);
    bytes_sent_ = body.size();
  }
  finished_ = true;
  const IoResult written = stream_.write_now(parts);
  if (!written.ok()) CO_CHECK(co_await send_rest(parts, written));
  co_return Result<void>();
}

asio::awaitable<Result<void>> Connection::start(ResponseHead head, bool flush) {
  CO_CHECK(begin_response(head));
  head_held_ = !flush;
  if (head_held_) co_return Result<void>();
  Gather parts;
  parts.add(out_);
  auto sent = co_await send(parts);
  co_return sent;
}

asio::awaitable<Result<void>> Connection::write(std::string_view data) {
  assert(started_ && !finished_ && "write() belongs between start() and finish()");
  if (data.empty() || !body_expected_) co_return Result<void>();
  if (framing_.content_length && data.size() > *framing_.content_length - bytes_sent_) {
    abort();
    co_return Error{ErrorCode::internal, "the answer's body is longer than its Content-Length"};
  }
  if (!std::exchange(head_held_, false)) out_.clear();
  if (framing_.chunked) append_chunk_size(data.size(), out_);
  Gather parts;
  parts.add(out_);
  parts.add(data);
  if (framing_.chunked) parts.add("\r\n");
  const IoResult written = stream_.write_now(parts);
  if (!written.ok()) CO_CHECK(co_await send_rest(parts, written));
  bytes_sent_ += data.size();
  co_return Result<void>();
}

asio::awaitable<Result<void>> Connection::finish() {
  assert(started_ && !finished_ && "finish() comes once, after start()");
  if (body_expected_ && framing_.content_length && bytes_sent_ != *framing_.content_length) {
    abort();
    co_return Error{ErrorCode::internal, "the answer's body is shorter than its Content-Length"};
  }
  Gather parts;
  if (std::exchange(head_held_, false)) parts.add(out_);
  if (framing_.chunked) parts.add("0\r\n\r\n");
  finished_ = true;
  if (parts.empty()) co_return Result<void>();
  auto sent = co_await send(parts);
  co_return sent;
}

void Connection::abort() {
  broken_ = true;
  // A body that ends with the connection must not seem to have ended well.
  const bool until_close =
      started_ && body_expected_ && !framing_.chunked && !framing_.content_length;
  stream_.close(until_close);
}

asio::awaitable<Result<void>> Connection::send(Gather parts) {
  const IoResult written = stream_.write_now(parts);
  auto sent = co_await send_rest(parts, written);
  co_return sent;
}

// What write_now() has begun. The usual case, that it did all, is worth no coroutine.
asio::awaitable<Result<void>> Connection::send_rest(Gather parts, IoResult result) {
  if (result.would_block()) {
    result = co_await stream_.write_rest(parts, server_->options.write_timeout);
  }
  if (result.ok()) co_return Result<void>();
  co_return write_error(result);
}

Error Connection::write_error(IoResult result) {
  // A part may have gone out: nothing that is written after it could be read right.
  abort();
  client_gone_ = true;
  if (result.kind == IoResult::Kind::timeout) {
    return {ErrorCode::cancelled, fmt::format("the client read nothing for {}",
                                              to_string(server_->options.write_timeout))};
  }
  return {ErrorCode::cancelled, "the client closed the connection before the end of the answer"};
}

asio::awaitable<Result<Exchange::Upgraded>> Connection::upgrade(ResponseHead head) {
  assert(head.status == 101 && body_.done());
  CO_CHECK(begin_response(head, true));
  finished_ = true;
  Gather parts;
  parts.add(out_);
  auto sent = co_await send(parts);
  if (!sent.ok()) co_return std::move(sent).error();
  on_client_gone({});
  upgraded_ = true;
  Upgraded upgraded;
  upgraded.read_ahead = stream_.input().view();
  upgraded.socket = stream_.release();
  co_return upgraded;
}

asio::awaitable<void> Connection::close_gently() {
  if (broken_ || !stream_.is_open()) co_return;
  // Closing a socket with unread bytes resets it, and a reset can take back the answer that the
  // client has not read yet. So what still comes is dropped for a while.
  int unread = 0;
  ::ioctl(stream_.fd(), FIONREAD, &unread);
  if (body_.done() && stream_.input().empty() && unread == 0) co_return;
  stream_.shutdown_write();
  const TimePoint deadline = Clock::now() + kLinger;
  for (;;) {
    InputBuffer& input = stream_.input();
    input.consume(input.view().size());
    IoResult result = stream_.fill_now();
    if (result.would_block()) result = co_await stream_.fill(deadline);
    if (!result.ok()) co_return;
  }
}

// ---- the client leaving

bool Connection::client_gone() const {
  if (client_gone_ || upgraded_) return client_gone_;
  return !stream_.is_open() || stream_.peer_gone();
}

void Connection::on_client_gone(std::function<void()> callback) {
  on_client_gone_ = std::move(callback);
  stream_.listen(on_client_gone_ ? this : nullptr);
}

void Connection::on_peer_gone(Stream&) {
  client_gone_ = true;
  // Moved out first: the callback may set another.
  auto callback = std::exchange(on_client_gone_, {});
  if (callback) callback();
}

}  // namespace omni::http
