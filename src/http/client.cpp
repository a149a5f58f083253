#include "http/client.h"

#include <fmt/format.h>

#include "http/client_call.h"

namespace omni::http {
namespace {

std::string host_of(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::tcp ? to_string(endpoint) : "localhost";
}

bool takes_body(std::string_view method) {
  return method == "POST" || method == "PUT" || method == "PATCH";
}

}  // namespace

struct Client::Impl : ClientContext {
  using ClientContext::ClientContext;
};

Client::Client(asio::io_context& loop, ClientOptions options)
    : impl_(std::make_shared<Impl>(loop, options)) {}

Client::~Client() = default;

std::unique_ptr<Call> Client::call(const Endpoint& endpoint, CallOptions options) {
  return std::make_unique<ClientCall>(impl_, endpoint, options);
}

asio::awaitable<Result<Response>> Client::request(const Endpoint& endpoint, std::string_view method,
                                                  std::string_view target, Headers headers,
                                                  std::string_view body, Duration timeout,
                                                  Bytes limit) {
  if (!headers.has("host")) headers.add("Host", host_of(endpoint));
  if (!headers.has("content-length") && (!body.empty() || takes_body(method))) {
    headers.add("Content-Length", std::to_string(body.size()));
  }
  const std::string head = encode_head(method, target, headers);
  ClientCall call(impl_, endpoint, {.read_timeout = timeout, .expires = Clock::now() + timeout});
  CO_CHECK(co_await call.send(head, body));
  CO_TRY(ResponseHead answer, co_await call.read_head());
  Response response{.status = answer.status, .headers = std::move(answer.headers)};
  for (;;) {
    CO_TRY(const std::string_view piece, co_await call.read_some());
    if (piece.empty()) co_return response;
    if (response.body.size() + piece.size() > static_cast<std::size_t>(limit.count())) {
      co_return Error{ErrorCode::body_too_large,
                      fmt::format("the answer of {} to {} {} is larger than {}",
                                  to_string(endpoint), method, target, to_string(limit))};
    }
    response.body += piece;
  }
}

void Client::close_idle(const Endpoint& endpoint) { impl_->pool.close(endpoint); }

}  // namespace omni::http
