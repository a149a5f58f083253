#include "gateway/answer.h"

#include <fmt/format.h>

#include "gateway/sse.h"
#include "http/error_body.h"

namespace omni::gateway {

Answer::Answer(http::Exchange& exchange, std::string request_id, std::string origin)
    : exchange_(exchange), request_id_(std::move(request_id)), origin_(std::move(origin)) {}

void Answer::add_common_headers(http::ResponseHead& head) {
  head.headers.set("x-request-id", request_id_);
  if (origin_.empty()) return;
  head.headers.set("access-control-allow-origin", origin_);
  head.headers.set("access-control-expose-headers", "x-request-id, retry-after");
  head.headers.add("vary", "Origin");
}

asio::awaitable<Result<void>> Answer::respond(int status, std::string content_type,
                                              std::string_view body) {
  http::ResponseHead head;
  head.status = status;
  if (!content_type.empty()) head.headers.set("content-type", std::move(content_type));
  return respond(std::move(head), body);
}

asio::awaitable<Result<void>> Answer::respond(http::ResponseHead head, std::string_view body) {
  status_ = head.status;
  ended_ = true;
  head.content_length = body.size();
  add_common_headers(head);
  return exchange_.respond(std::move(head), body);
}

asio::awaitable<Result<void>> Answer::start(http::ResponseHead head, bool flush) {
  status_ = head.status;
  add_common_headers(head);
  return exchange_.start(std::move(head), flush);
}

asio::awaitable<Result<void>> Answer::write(std::string_view data) { return exchange_.write(data); }

asio::awaitable<Result<void>> Answer::finish() {
  ended_ = true;
  return exchange_.finish();
}

asio::awaitable<Result<http::Exchange::Upgraded>> Answer::upgrade(http::ResponseHead head) {
  status_ = head.status;
  ended_ = true;
  add_common_headers(head);
  return exchange_.upgrade(std::move(head));
}

asio::awaitable<Result<void>> Answer::start_events() { return start_events(http::ResponseHead()); }

asio::awaitable<Result<void>> Answer::start_events(http::ResponseHead head) {
  if (events_) co_return Result<void>();
  head.status = 200;
  if (!head.headers.has("content-type")) {
    head.headers.set("content-type", "text/event-stream; charset=utf-8");
  }
  // Proxies must neither cache a stream nor gather it: nginx reads the second one.
  head.headers.set("cache-control", "no-cache");
  head.headers.set("x-accel-buffering", "no");
  head.content_length.reset();
  auto started = co_await start(std::move(head), true);
  events_ = started.ok();
  co_return started;
}

http::ResponseHead Answer::error_head(int status) const {
  http::ResponseHead head;
  head.status = status;
  head.headers.set("content-type", "application/json");
  if (retry_after_seconds_ > 0) {
    head.headers.set("retry-after", std::to_string(retry_after_seconds_));
  }
  if (!allow_.empty()) head.headers.set("allow", allow_);
  if (status == 401) head.headers.set("www-authenticate", "Bearer");
  return head;
}

asio::awaitable<void> Answer::fail(const Error& error) {
  if (ended_) co_return;
  const std::string body = http::error_body(error, request_id_, param_);
  Result<void> sent;
  if (events_) {
    sent = co_await end_events(body);
  } else if (exchange_.started()) {
    ended_ = true;
    exchange_.abort();
  } else {
    sent = co_await respond(error_head(error.info().http_status), body);
  }
  if (!sent.ok()) exchange_.abort();  // The client has left: there is nobody to tell.
}

asio::awaitable<Result<void>> Answer::fail(int status, std::string body) {
  Result<void> sent;
  if (events_) {
    sent = co_await end_events(body);
  } else {
    sent = co_await respond(error_head(status), body);
  }
  co_return sent;
}

asio::awaitable<Result<void>> Answer::end_events(std::string_view error_body) {
  if (torn_) {
    ended_ = true;
    exchange_.abort();
    co_return Result<void>();
  }
  const std::string told = event(error_body);
  CO_CHECK(co_await write(told));
  auto finished = co_await finish();
  co_return finished;
}

}  // namespace omni::gateway
