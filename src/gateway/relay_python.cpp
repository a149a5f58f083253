#include "gateway/relay_python.h"

#include <fmt/format.h>

#include "gateway/errors.h"

namespace omni::gateway {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(5);
// From CANCEL to END; then the runtime counts as hung.
constexpr Duration kCancelPatience = std::chrono::seconds(5);
constexpr Duration kCancelPoll = std::chrono::milliseconds(50);
// Of an answer that is not streamed. Handlers that make more should yield it.
constexpr std::size_t kLargestCollected = std::size_t{256} << 20;

// Where an answer's body goes: to the client as it comes, or together until its end.
class BodySink {
 public:
  BodySink(Answer& answer, TaskAdapter::Head head, http::ResponseHead response)
      : answer_(answer), head_(std::move(head)), response_(std::move(response)) {
    if (!head_.content_type.empty()) response_.headers.set("content-type", head_.content_type);
  }

  asio::awaitable<Result<void>> write(std::string piece) {
    if (!head_.streams) {
      if (body_.size() + piece.size() > kLargestCollected) {
        co_return unfit_answer("it is too large to be collected: yield it in parts");
      }
      body_ += piece;
      co_return Result<void>();
    }
    CO_CHECK(co_await start());
    if (piece.empty()) co_return Result<void>();
    auto written = co_await answer_.write(piece);
    co_return written;
  }

  asio::awaitable<Result<void>> finish() {
    if (!head_.streams) {
      auto answered = co_await answer_.respond(std::move(response_), body_);
      co_return answered;
    }
    CO_CHECK(co_await start());
    auto finished = co_await answer_.finish();
    co_return finished;
  }

 private:
  asio::awaitable<Result<void>> start() {
    if (std::exchange(started_, true)) co_return Result<void>();
    Result<void> begun;
    if (head_.events) {
      begun = co_await answer_.start_events(std::move(response_));
    } else {
      begun = co_await answer_.start(std::move(response_));
    }
    co_return begun;
  }

  Answer& answer_;
  TaskAdapter::Head head_;
  http::ResponseHead response_;
  std::string body_;
  bool started_ = false;
};

http::ResponseHead response_head(const engine::ResponseStart& start) {
  http::ResponseHead head;
  head.status = start.status;
  for (const auto& [name, value] : start.headers) {
    const bool framing = http::iequals(name, "content-length") ||
                         http::iequals(name, "transfer-encoding") ||
                         http::iequals(name, "connection");
    if (!framing) head.headers.set(name, value);
  }
  return head;
}

void count_tokens(const ModelMetrics& metrics, const std::optional<Usage>& usage) {
  if (!usage) return;
  if (metrics.tokens_in) metrics.tokens_in->add(usage->prompt_tokens);
  if (metrics.tokens_out) metrics.tokens_out->add(usage->completion_tokens);
}

// serve() tells a broken connection by its code; what failed on this machine is none.
bool broke(const Error& error) {
  return error.code == ErrorCode::instance_crashed || error.code == ErrorCode::daemon_unreachable;
}

}  // namespace

asio::awaitable<Attempt> PythonBackend::attempt(Request& request, Lease& lease) {
  const InstanceRoute instance = lease.instance();
  Attempt attempt;
  auto channel = co_await request.services.channels.get(instance, kConnectTimeout);
  if (!channel.ok()) {
    attempt.outcome = Error{ErrorCode::instance_crashed, channel.error().message};
    co_return attempt;
  }
  channel_ = *channel;
  services_ = &request.services;
  auto outgoing = message(request);
  if (!outgoing.ok()) {
    attempt.outcome = outgoing.error();
    co_return attempt;
  }
  auto call = channel_->call(std::move(*outgoing), request.model->request_timeout);
  ClientWatch watch(request.exchange, [&call] { call->cancel(); });
  auto adapter = make_adapter_();
  attempt.outcome = co_await relay(request, *call, *adapter);
  attempt.progress = call->answered() ? http::Progress::first_byte : http::Progress::sent;
  count_tokens(request.model->metrics, adapter->usage());
  if (attempt.outcome.ok()) co_return attempt;
  if (!call->error_param().empty()) request.answer.blame(std::string(call->error_param()));
  if (request.exchange.client_gone()) {
    attempt.outcome = client_left();
  } else if (broke(attempt.outcome.error())) {
    attempt.outcome = Error{ErrorCode::instance_crashed, attempt.outcome.error().message};
  }
  co_return attempt;
}

// A handler that is stuck in a call holds its place; one that gives up gets its next request at
// once.
asio::awaitable<void> await_cancel(asio::io_context& loop, Lease lease,
                                   std::shared_ptr<engine::ModelChannel> channel) {
  const TimePoint deadline = Clock::now() + kCancelPatience;
  asio::steady_timer timer(loop);
  while (channel->alive() && channel->oldest_cancel(Clock::now())) {
    if (Clock::now() >= deadline) {
      lease.release_hung();
      co_return;
    }
    timer.expires_after(kCancelPoll);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

void PythonBackend::timed_out(Lease lease) {
  services_->tasks.spawn(await_cancel(services_->loop, std::move(lease), channel_));
}

Result<engine::ModelRequest> PythonBackend::message(const Request& request) const {
  engine::ModelRequest out;
  out.id = request.answer.request_id();
  out.task = request.model->task;
  out.parameters = wanted_.parameters;
  out.stream = request.wants_events;
  out.raw = wanted_.raw;
  out.content_type = wanted_.content_type;
  out.body = wanted_.body;
  for (const UploadedFile& file : wanted_.files) {
    TRY(Fd content, file.content->reopen());
    out.files.push_back(
        {file.name, file.filename, file.content_type, file.content->size(), std::move(content)});
  }
  return out;
}

asio::awaitable<Result<void>> PythonBackend::relay(Request& request, engine::ModelCall& call,
                                                   TaskAdapter& adapter) {
  CO_TRY(engine::ResponseStart start, co_await call.start());
  // From here on the request is never sent again.
  wanted_ = {};
  request.held.release();
  Result<void> relayed;
  if (start.status >= 400) {
    relayed = co_await relay_refusal(request, call, start);
  } else {
    relayed = co_await relay_items(request, call, adapter, start);
  }
  co_return relayed;
}

// The head waits for the first item, so that an error before it keeps its status.
asio::awaitable<Result<void>> PythonBackend::relay_items(Request& request, engine::ModelCall& call,
                                                         TaskAdapter& adapter,
                                                         const engine::ResponseStart& start) {
  CO_TRY(std::optional<engine::Item> item, co_await call.next());
  TaskAdapter::FirstKind first;
  if (item) first = item->kind;
  CO_TRY(TaskAdapter::Head head, adapter.begin(start, first));
  BodySink body(request.answer, std::move(head), response_head(start));
  const TimePoint end = Clock::now() + request.model->request_timeout;
  while (item) {
    // The channel's own limit is the time without an item.
    if (Clock::now() >= end) {
      call.cancel();
      co_return Error{ErrorCode::engine_timeout,
                      fmt::format("the handler did not end its answer within {}",
                                  to_string(request.model->request_timeout))};
    }
    CO_TRY(std::string piece, adapter.item(std::move(*item)));
    CO_CHECK(co_await body.write(std::move(piece)));
    auto next = co_await call.next();
    if (!next.ok()) co_return next.error();
    item = std::move(*next);
  }
  CO_TRY(std::string last, adapter.end(call.trailer()));
  CO_CHECK(co_await body.write(std::move(last)));
  auto finished = co_await body.finish();
  co_return finished;
}

asio::awaitable<Result<void>> PythonBackend::relay_refusal(Request& request,
                                                           engine::ModelCall& call,
                                                           const engine::ResponseStart& start) {
  std::string body;
  for (;;) {
    CO_TRY(std::optional<engine::Item> item, co_await call.next());
    if (!item) break;
    body += item->data;
    if (body.size() > kLargestCollected) co_return unfit_answer("its error is too large");
  }
  std::string shown = engine_error_body(start.status, body, request.answer.request_id());
  auto sent = co_await request.answer.fail(start.status, std::move(shown));
  co_return sent;
}

}  // namespace omni::gateway
