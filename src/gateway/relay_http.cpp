#include "gateway/relay_http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "gateway/api_keys.h"
#include "gateway/errors.h"
#include "gateway/tunnel.h"

namespace omni::gateway {
namespace {

constexpr std::size_t kSendBuffer = 64 * 1024;
constexpr std::size_t kLongestErrorBody = 64 * 1024;  // read to be judged; larger ones are cut

constexpr std::array<std::string_view, 9> kHopByHop{"connection",
                                                    "keep-alive",
                                                    "proxy-connection",
                                                    "proxy-authenticate",
                                                    "proxy-authorization",
                                                    "te",
                                                    "trailer",
                                                    "transfer-encoding",
                                                    "upgrade"};

bool one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view n) { return http::iequals(name, n); });
}

// What the gateway says to the engine in the client's place.
constexpr std::array<std::string_view, 5> kOwnOfRequest{"host", "content-length", "expect",
                                                        "x-request-id", "origin"};

bool own_response_header(std::string_view name) {
  return http::iequals(name, "content-length") || http::iequals(name, "x-request-id") ||
         (name.size() > 15 && http::iequals(name.substr(0, 15), "access-control-"));
}

// The engine's answer without hop-by-hop headers and those that the gateway answers for itself.
http::ResponseHead end_to_end_head(http::ResponseHead head) {
  http::Headers named;  // what the engine itself calls hop-by-hop
  for (const http::Header& field : head.headers.fields()) {
    if (http::iequals(field.name, "connection")) named.add(field.name, field.value);
  }
  head.headers.remove_if([&](const http::Header& field) {
    return one_of(field.name, kHopByHop) || own_response_header(field.name) ||
           named.has_token("connection", field.name);
  });
  return head;
}

std::string authority(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::unix_socket ? "localhost" : to_string(endpoint);
}

bool is_event_stream(const http::ResponseHead& head) {
  constexpr std::string_view kType = "text/event-stream";
  return http::iequals(head.headers.get("content-type").substr(0, kType.size()), kType);
}

void count(Counter* counter, std::uint64_t n) {
  if (counter) counter->add(n);
}

// The client's connection ended, or was too slow: for the engine the client has left.
Error to_client_error(const Error& error) {
  return error.code == ErrorCode::cancelled ? error : client_left();
}

}  // namespace

void EngineBody::add(std::string text) {
  if (!text.empty()) segments_.emplace_back(std::move(text));
}

void EngineBody::add(std::shared_ptr<const SpoolFile> file) {
  segments_.emplace_back(std::move(file));
}

std::uint64_t EngineBody::size() const {
  std::uint64_t total = 0;
  for (const Segment& segment : segments_) {
    const auto* text = std::get_if<std::string>(&segment);
    total += text ? text->size() : std::get<1>(segment)->size();
  }
  return total;
}

asio::awaitable<Attempt> HttpBackend::attempt(Request& request, Lease& lease) {
  const InstanceRoute instance = lease.instance();
  const Endpoint& endpoint = instance.slot->endpoint;
  // Of the whole answer; an upgraded connection has no such end.
  const Duration limit = request.model->request_timeout;
  const bool in_one_piece = !wanted_.stream_body && wanted_.body.segments().size() <= 1;
  auto call = request.services.client.call(
      endpoint, {.read_timeout = limit, .expires = Clock::now() + limit, .fresh = !in_one_piece});
  ClientWatch watch(request.exchange, [&call] { call->cancel(); });
  Attempt attempt;
  attempt.outcome = co_await run(request, *call, lease);
  attempt.progress = call->progress();
  if (attempt.outcome.ok()) co_return attempt;
  if (request.exchange.client_gone()) {
    attempt.outcome = client_left();
  } else if (attempt.outcome.error().code == ErrorCode::daemon_unreachable) {
    attempt.outcome = Error{ErrorCode::instance_crashed, attempt.outcome.error().message};
  }
  co_return attempt;
}

asio::awaitable<Result<void>> HttpBackend::run(Request& request, http::Call& call, Lease& lease) {
  const std::string head_sent = head_for(request, lease.instance().slot->endpoint);
  auto sent = co_await send(request, call, head_sent);
  // An engine that refuses a body early stops reading it; what it said is still to be read.
  const bool cut = !sent.ok() && sent.error().code == ErrorCode::instance_crashed;
  if (!sent.ok() && !cut) co_return sent;
  auto answered = co_await call.read_head();
  if (!answered.ok()) co_return cut ? sent.error() : answered.error();
  http::ResponseHead head = std::move(*answered);
  // From here on the request is never sent again: its body need not be kept.
  wanted_.body = {};
  request.held.release();
  if (head.status == 101) {
    auto relayed = co_await relay_upgrade(request, call, std::move(head), lease);
    co_return relayed;
  }
  auto relayed = co_await relay_answer(request, call, std::move(head));
  if (wanted_.count_tokens && tap_.usage()) {
    count(request.model->metrics.tokens_in, tap_.usage()->prompt_tokens);
    count(request.model->metrics.tokens_out, tap_.usage()->completion_tokens);
  }
  co_return relayed;
}

std::string HttpBackend::head_for(const Request& request, const Endpoint& endpoint) const {
  const http::RequestHead& from = request.head();
  http::RequestHeadWriter head(wanted_.method, wanted_.target);
  head.add("host", authority(endpoint));
  head.add("x-request-id", request.answer.request_id());
  const bool names_others = from.headers.has("connection");
  const bool has_keys = !request.config().keys.empty();
  for (const http::Header& field : from.headers.fields()) {
    const bool replaced =
        (!wanted_.content_type.empty() && http::iequals(field.name, "content-type")) ||
        (wanted_.answer_is_read && http::iequals(field.name, "accept-encoding"));
    if (has_keys && is_key_header(field.name)) continue;
    if (replaced || one_of(field.name, kHopByHop) || one_of(field.name, kOwnOfRequest)) continue;
    if (names_others && from.headers.has_token("connection", field.name)) continue;
    head.add(field.name, field.value);
  }
  if (!wanted_.content_type.empty()) head.add("content-type", wanted_.content_type);
  if (wanted_.stream_body && !from.content_length) {
    head.add("transfer-encoding", "chunked");
  } else if (wanted_.stream_body) {
    head.add("content-length", std::to_string(*from.content_length));
  } else if (wanted_.body.size() > 0 || wanted_.method == "POST" || wanted_.method == "PUT") {
    head.add("content-length", std::to_string(wanted_.body.size()));
  }
  if (wanted_.upgrade) {
    head.add("connection", "upgrade");
    head.add("upgrade", from.headers.get("upgrade"));
  }
  return std::move(head).finish();
}

asio::awaitable<Result<void>> HttpBackend::send(Request& request, http::Call& call,
                                                const std::string& head) {
  if (wanted_.stream_body) {
    auto sent = co_await send_client_body(request, call, head);
    co_return sent;
  }
  // A body in one piece, nearly always, leaves together with its head.
  const auto& segments = wanted_.body.segments();
  const std::string* first = segments.empty() ? nullptr : std::get_if<std::string>(&segments[0]);
  CO_CHECK(co_await call.send(head, first ? std::string_view(*first) : std::string_view()));
  std::vector<char> buffer;
  for (std::size_t i = first ? 1 : 0; i < segments.size(); ++i) {
    if (const auto* text = std::get_if<std::string>(&segments[i])) {
      CO_CHECK(co_await call.send_more(*text));
      continue;
    }
    const SpoolFile& file = *std::get<1>(segments[i]);
    buffer.resize(kSendBuffer);
    for (std::uint64_t at = 0; at < file.size();) {
      CO_TRY(std::size_t filled, file.read_at(at, buffer));
      if (filled == 0) co_return Error{ErrorCode::io_error, "a spooled body became shorter"};
      CO_CHECK(co_await call.send_more(std::string_view(buffer.data(), filled)));
      at += filled;
    }
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> HttpBackend::send_client_body(Request& request, http::Call& call,
                                                            const std::string& head) {
  const bool chunked = !request.head().content_length;
  CO_CHECK(co_await call.send(head, {}));
  for (;;) {
    client_body_read_ = true;
    auto piece = co_await request.exchange.read_some();
    if (!piece.ok()) co_return to_client_error(piece.error());
    if (piece->empty()) break;
    if (!chunked) {
      CO_CHECK(co_await call.send_more(*piece));
      continue;
    }
    const std::string chunk = http::encode_chunk(*piece);
    CO_CHECK(co_await call.send_more(chunk));
  }
  if (chunked) {
    const std::string last = http::encode_chunk({});
    CO_CHECK(co_await call.send_more(last));
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> HttpBackend::relay_answer(Request& request, http::Call& call,
                                                        http::ResponseHead head) {
  // The raw path shows an engine as it is.
  const bool raw = request.route.api == Api::upstream;
  if (head.status >= 400 && !raw) return relay_error(request, call, std::move(head));
  if (is_event_stream(head) && !raw) return relay_events(request, call, std::move(head));
  return relay_bytes(request, call, std::move(head));
}

asio::awaitable<Result<void>> HttpBackend::relay_events(Request& request, http::Call& call,
                                                        http::ResponseHead head) {
  EventGate gate(wanted_.hide_usage);
  CO_CHECK(co_await request.answer.start_events(end_to_end_head(std::move(head))));
  for (;;) {
    CO_TRY(std::string_view piece, co_await call.read_some());
    if (piece.empty()) break;
    if (wanted_.count_tokens) tap_.feed(piece);
    const std::string_view out = gate.feed(piece);
    if (gate.torn()) request.answer.events_torn();
    if (out.empty()) continue;
    auto written = co_await request.answer.write(out);
    if (!written.ok()) co_return to_client_error(written.error());
  }
  const std::string_view rest = gate.rest();
  if (!rest.empty()) CO_CHECK(co_await request.answer.write(rest));
  auto finished = co_await request.answer.finish();
  co_return finished;
}

asio::awaitable<Result<void>> HttpBackend::relay_bytes(Request& request, http::Call& call,
                                                       http::ResponseHead head) {
  if (request.answer.events_started()) {
    co_return Error{ErrorCode::engine_protocol,
                    fmt::format("the engine answered a stream request with {}",
                                head.headers.get("content-type"))};
  }
  http::ResponseHead out = end_to_end_head(std::move(head));
  std::string_view piece;
  if (out.content_length) {
    CO_TRY(piece, co_await call.read_some());
    if (piece.size() == out.content_length && !piece.empty()) {  // it is all there already
      if (wanted_.count_tokens) tap_.feed(piece);
      auto sent = co_await request.answer.respond(std::move(out), piece);
      co_return sent.ok() ? Result<void>() : to_client_error(sent.error());
    }
  }
  const bool unsized = !out.content_length;
  CO_CHECK(co_await request.answer.start(std::move(out), unsized));
  for (;;) {
    if (piece.empty()) {
      CO_TRY(piece, co_await call.read_some());
    }
    if (piece.empty()) break;
    if (wanted_.count_tokens) tap_.feed(piece);
    auto written = co_await request.answer.write(std::exchange(piece, {}));
    if (!written.ok()) co_return to_client_error(written.error());
  }
  auto finished = co_await request.answer.finish();
  co_return finished;
}

asio::awaitable<Result<void>> HttpBackend::relay_error(Request& request, http::Call& call,
                                                       http::ResponseHead head) {
  std::string body;
  while (body.size() < kLongestErrorBody) {
    CO_TRY(std::string_view piece, co_await call.read_some());
    if (piece.empty()) break;
    body += piece;
  }
  const std::string_view after = head.headers.get("retry-after");
  if (!after.empty()) request.answer.retry_after(std::atoll(std::string(after).c_str()));
  std::string shown = engine_error_body(head.status, body, request.answer.request_id());
  auto sent = co_await request.answer.fail(head.status, std::move(shown));
  co_return sent;
}

asio::awaitable<Result<void>> HttpBackend::relay_upgrade(Request& request, http::Call& call,
                                                         http::ResponseHead head, Lease& lease) {
  if (!wanted_.upgrade) {
    co_return Error{ErrorCode::engine_protocol,
                    "the engine switched protocols without being asked"};
  }
  std::string protocol(head.headers.get("upgrade"));
  TunnelLease work{.is_websocket = http::iequals(protocol, "websocket"),
                   .pause_after = request.model->idle_connection,
                   .pause = [&lease] { lease.pause(); },
                   .over = [&shared = request.services.shared] { return shared.draining.load(); },
                   .resume = [&lease] { return lease.resume(); }};
  http::ResponseHead out = end_to_end_head(std::move(head));
  out.headers.set("connection", "upgrade");
  out.headers.set("upgrade", std::move(protocol));
  auto [socket, read_ahead] = call.release_socket();
  TunnelEnd engine{Fd(socket), std::move(read_ahead)};
  CO_TRY(http::Exchange::Upgraded upgraded, co_await request.answer.upgrade(std::move(out)));
  TunnelEnd client{std::move(upgraded.socket), std::move(upgraded.read_ahead)};
  const Duration idle = request.model->request_timeout;
  co_await tunnel(request.services.loop, std::move(client), std::move(engine), idle,
                  std::move(work));
  co_return Result<void>();
}

}  // namespace omni::gateway
