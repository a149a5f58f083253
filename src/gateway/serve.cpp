#include "gateway/serve.h"

#include <fmt/format.h>

namespace omni::gateway {
namespace {

// Two instances that break under one request make the request the suspect.
constexpr int kCrashesOfOneRequest = 2;
// Instances that could not be reached at all say nothing about the request; the bound only ends a
// chase after instances that die faster than they serve.
constexpr int kMostAttempts = 6;

Error queue_timeout(Request& request) {
  request.answer.retry_after(std::max<std::int64_t>(1, request.model->retry_after_seconds));
  return {ErrorCode::queue_timeout,
          fmt::format("model \"{}\" had no free instance within {} (limits.queue_timeout)",
                      request.model->name, to_string(request.config().queue_timeout))};
}

asio::awaitable<Result<void>> show_waiting(Request& request) {
  CO_CHECK(co_await request.answer.start_events());
  auto written = co_await request.answer.write(": waiting\n\n");
  co_return written;
}

asio::awaitable<Result<Lease>> wait_for_lease(Request& request, TimePoint deadline) {
  const Duration interval = request.services.shared.waiting_comment_interval;
  TimePoint comment_at = request.wants_events ? Clock::now() + interval : TimePoint::max();
  Ticket ticket =
      request.services.admission.admit(*request.model, deadline, request.model->priority);
  ClientWatch watch(request.exchange, [&ticket] { ticket.wake(); });
  for (;;) {
    const TimePoint until = std::min(deadline, comment_at);
    const bool decided = co_await ticket.wait(until);
    if (decided) break;
    if (request.exchange.client_gone()) co_return client_left();
    if (Clock::now() >= deadline) co_return queue_timeout(request);
    if (Clock::now() < comment_at) continue;
    CO_CHECK(co_await show_waiting(request));
    comment_at = Clock::now() + interval;
  }
  request.answer.retry_after(ticket.retry_after_seconds());
  co_return ticket.take();
}

asio::awaitable<Result<Lease>> queue_for_lease(Request& request, TimePoint deadline) {
  const TimePoint began = Clock::now();
  auto lease = co_await wait_for_lease(request, deadline);
  request.queue_time += Clock::now() - began;
  co_return lease;
}

// The model may have got a new version or have gone while the request was served.
Result<void> renew_model(Request& request) {
  const std::string name = request.model_name;
  return request.choose_model(name);
}

Error crashed(const Request& request, const Error& cause, std::string_view why_no_more) {
  return {ErrorCode::instance_crashed,
          fmt::format("model \"{}\": the connection to its instance broke ({}); {}",
                      request.model->name, cause.message, why_no_more)};
}

// A connection's error speaks of an endpoint; the client knows a model.
Error of_model(const Request& request, const Error& cause, std::string_view way_out) {
  return {cause.code,
          fmt::format("model \"{}\": {}{}", request.model->name, cause.message, way_out)};
}

}  // namespace

asio::awaitable<Result<void>> serve(Request& request, Backend& backend) {
  TimePoint deadline = Clock::now() + request.config().queue_timeout;
  int crashes = 0;
  for (int attempts = 1;; ++attempts) {
    // A request that is sent again takes no short cut: the word of the instance that broke is open
    // until the control loop has read of it, which is before it reads of the new ticket.
    std::optional<Lease> free;
    if (attempts == 1) free = request.services.admission.try_lease(*request.model);
    if (!free) {
      CO_TRY(Lease waited, co_await queue_for_lease(request, deadline));
      free = std::move(waited);
    }
    Lease& lease = *free;
    const TimePoint began = Clock::now();
    Attempt attempt = co_await backend.attempt(request, lease);
    const ErrorCode failure =
        attempt.outcome.ok() ? ErrorCode::cancelled : attempt.outcome.error().code;
    if (failure == ErrorCode::engine_timeout) {
      backend.timed_out(std::move(lease));
      co_return of_model(request, attempt.outcome.error(), " (limits.request_timeout)");
    }
    if (failure == ErrorCode::engine_protocol) {
      co_return of_model(request, attempt.outcome.error(), "; see its log");
    }
    if (failure != ErrorCode::instance_crashed) co_return attempt.outcome;

    lease.release_suspect();
    const Error& cause = attempt.outcome.error();
    if (attempt.progress == http::Progress::first_byte) {
      co_return crashed(request, cause, "its answer had begun");
    }
    if (attempt.progress == http::Progress::sent) ++crashes;
    if (!backend.replayable()) {
      co_return crashed(request, cause, "its body had streamed through and cannot be sent again");
    }
    if (crashes == kCrashesOfOneRequest) {
      co_return crashed(request, cause, "it is the second one with this request: no third try");
    }
    if (attempts == kMostAttempts) {
      co_return crashed(request, cause, fmt::format("{} instances were tried", attempts));
    }
    if (request.exchange.client_gone()) co_return client_left();
    if (request.model->metrics.replays) request.model->metrics.replays->add();
    CO_CHECK(renew_model(request));
    deadline += Clock::now() - began;  // The queue's time is for waiting, not for being served.
  }
}

}  // namespace omni::gateway
