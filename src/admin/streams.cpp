#include "admin/streams.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "admin/log_reader.h"
#include "base/text.h"

namespace omni::admin {
namespace {

using namespace std::chrono_literals;

constexpr auto kLogPoll = 100ms;    // a person watches: sooner is not seen
constexpr auto kEventSilence = 5s;  // then a comment, so that a dead connection is noticed

http::ResponseHead stream_head(std::string content_type) {
  http::ResponseHead head;
  head.headers.set("Content-Type", content_type);
  head.headers.set("Cache-Control", "no-store");
  return head;
}

asio::awaitable<void> sleep_for(Duration duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor, duration);
  boost::system::error_code status;
  auto token = asio::redirect_error(asio::use_awaitable, status);
  co_await timer.async_wait(token);
}

// Other exchanges of this thread run between two blocks.
asio::awaitable<void> let_others_run() {
  auto executor = co_await asio::this_coro::executor;
  co_await asio::post(executor, asio::use_awaitable);
}

// Sends what the log has now.
asio::awaitable<Result<void>> send_available(LogReader& log, http::Exchange& exchange,
                                             std::span<char> buffer) {
  for (;;) {
    CO_TRY(const std::size_t n, log.read(buffer));
    if (n == 0) co_return Result<void>();
    const std::string_view text(buffer.data(), n);
    CO_CHECK(co_await exchange.write(text));
  }
}

asio::awaitable<Result<void>> send_log(NodeControl& node, LogReader& log, http::Exchange& exchange,
                                       bool follow) {
  std::vector<char> buffer(LogReader::kBlock);
  CO_CHECK(co_await send_available(log, exchange, buffer));
  while (follow && !exchange.client_gone() && !node.stopping()) {
    co_await sleep_for(kLogPoll);
    CO_CHECK(co_await send_available(log, exchange, buffer));
  }
  Result<void> finished = co_await exchange.finish();
  co_return finished;
}

std::uint64_t id_of(const Event& event) {
  const boost::json::value* id = event.if_contains("id");
  return id == nullptr ? 0 : id->to_number<std::uint64_t>();
}

asio::awaitable<Result<void>> send_events(NodeControl& node, http::Exchange& exchange,
                                          std::uint64_t after) {
  while (!exchange.client_gone() && !node.stopping()) {
    const TimePoint until = Clock::now() + kEventSilence;
    const std::vector<Event> events = co_await node.events(after, until);
    std::string text;
    for (const Event& event : events) {
      after = id_of(event);
      fmt::format_to(std::back_inserter(text), "id: {}\ndata: {}\n\n", after,
                     to_utf8(boost::json::serialize(event)));
    }
    if (text.empty()) text = ": no event\n\n";
    CO_CHECK(co_await exchange.write(text));
  }
  Result<void> finished = co_await exchange.finish();
  co_return finished;
}

}  // namespace

asio::awaitable<void> stream_log(NodeControl& node, http::Exchange& exchange, LogRequest request) {
  LogReader log(std::move(request.file));
  for (bool found = false; !found;) {
    Result<bool> step = log.seek_back(request.lines);
    if (!step.ok()) {
      co_await respond_error(exchange, std::move(step).error());
      co_return;
    }
    found = *step;
    co_await let_others_run();
  }
  http::ResponseHead head = stream_head("text/plain; charset=utf-8");
  Result<void> sent = co_await exchange.start(std::move(head), request.follow);
  if (sent.ok()) sent = co_await send_log(node, log, exchange, request.follow);
  if (!sent.ok()) exchange.abort();
}

asio::awaitable<void> stream_events(NodeControl& node, http::Exchange& exchange,
                                    std::uint64_t after) {
  http::ResponseHead head = stream_head("text/event-stream");
  const bool flush = true;
  Result<void> sent = co_await exchange.start(std::move(head), flush);
  if (sent.ok()) sent = co_await send_events(node, exchange, after);
  if (!sent.ok()) exchange.abort();
}

}  // namespace omni::admin
