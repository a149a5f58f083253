#include "gateway/gateway.h"

#include <spdlog/spdlog.h>

#include "gateway/api_keys.h"
#include "gateway/head_rules.h"
#include "gateway/inference.h"
#include "gateway/info.h"
#include "gateway/request.h"
#include "http/error_body.h"

namespace omni::gateway {
namespace {

// Of an error that does not know better.
constexpr std::int64_t kRetryAfter = 1;  // seconds

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

asio::awaitable<Result<void>> answer_endpoint(Request& request) {
  switch (request.route.api) {
    case Api::root:
      return answer_root(request);
    case Api::health:
    case Api::livez:
      return answer_alive(request);
    case Api::readyz:
      return answer_readyz(request);
    case Api::metrics:
      return answer_metrics(request);
    case Api::running:
      return answer_running(request);
    case Api::models:
      return answer_models(request);
    case Api::model:
      return answer_model(request);
    case Api::chat:
    case Api::completions:
    case Api::embeddings:
    case Api::rerank:
    case Api::speech:
    case Api::image_generations:
      return answer_json_task(request);
    case Api::transcriptions:
      return answer_transcription(request);
    case Api::image_edits:
      return answer_image_edit(request);
    case Api::run:
      return answer_run(request);
    case Api::upstream:
    case Api::admin:
      break;
  }
  return answer_upstream(request);
}

// The daemon itself failed: what its operator must see. The caller has been told of all else.
bool is_own_failure(ErrorCode code) {
  return code == ErrorCode::internal || code == ErrorCode::io_error || code == ErrorCode::disk_full;
}

// What the answer came to, by a label for the metrics; empty: all is well.
std::string failure_label(const Request& request, const Result<void>& outcome) {
  if (!outcome.ok()) return std::string(outcome.error().info().name);
  const int status = request.answer.status();
  return status >= 400 && request.model ? fmt::format("engine_{}", status) : std::string();
}

void count_error(Metrics& metrics, std::string model, std::string code) {
  metrics
      .counter("omni_request_errors_total", "Requests that failed, by error code.",
               {{"model", std::move(model)}, {"code", std::move(code)}})
      .add();
}

void record(const Request& request, const Result<void>& outcome) {
  const Duration latency = Clock::now() - request.exchange.received();
  const std::string failure = failure_label(request, outcome);
  if (request.model && request.route.api != Api::model) {
    const ModelMetrics& metrics = request.model->metrics;
    if (metrics.requests) metrics.requests->add();
    if (metrics.latency) metrics.latency->observe(latency);
    if (metrics.queue_time) metrics.queue_time->observe(request.queue_time);
  }
  if (!failure.empty()) {
    // Names that clients make up are no label: each would be a series for ever.
    count_error(*request.services.shared.metrics, request.model ? request.model->name : "",
                failure);
  }
  spdlog::debug("request {} {} {} key={} model={} status={} queued={}ms total={}ms {}",
                request.answer.request_id(), request.head().method, request.head().path(),
                request.key_name, request.model_name, request.answer.status(),
                milliseconds(request.queue_time), milliseconds(latency), failure);
  if (outcome.ok() || !is_own_failure(outcome.error().code)) return;
  spdlog::error("request {} failed: {}", request.answer.request_id(), outcome.error().message);
}

}  // namespace

struct Gateway::Impl : Services {
  using Services::Services;

  asio::awaitable<void> handle(http::Exchange& exchange);
  asio::awaitable<Result<void>> dispatch(Request& request);
};

Gateway::Gateway(asio::io_context& loop, std::uint32_t, Shared& shared, Admission& admission)
    : impl_(std::make_unique<Impl>(loop, shared, admission)) {}
Gateway::~Gateway() = default;

asio::awaitable<void> Gateway::handle(http::Exchange& exchange) { return impl_->handle(exchange); }

http::Refusal Gateway::refuse(const Error& error) {
  const std::string id = impl_->new_request_id();
  http::Refusal answer;
  answer.head.headers.add("content-type", "application/json");
  answer.head.headers.add("x-request-id", id);
  answer.body = http::error_body(error, id);
  count_error(*impl_->shared.metrics, "", std::string(error.info().name));
  spdlog::debug("request {} refused: {}", id, error.message);
  return answer;
}

asio::awaitable<void> Gateway::stop() { co_await impl_->tasks.stop(); }

void Gateway::close_idle(const Endpoint& endpoint) {
  impl_->client.close_idle(endpoint);
  impl_->channels.drop(endpoint);
}

asio::awaitable<void> Gateway::Impl::handle(http::Exchange& exchange) {
  const http::RequestHead& head = exchange.request();
  std::string id = sane_request_id(head.headers.get("x-request-id"));
  if (id.empty()) id = new_request_id();
  std::string origin = allowed_origin(head, *shared.config.load());
  Request request(*this, exchange, std::move(id), std::move(origin));
  auto outcome = co_await dispatch(request);
  // The one place where a failure is answered.
  if (!outcome.ok()) {
    if (outcome.error().code == ErrorCode::overloaded) request.answer.retry_after(kRetryAfter);
    co_await request.answer.fail(outcome.error());
  }
  record(request, outcome);
}

asio::awaitable<Result<void>> Gateway::Impl::dispatch(Request& request) {
  const http::RequestHead& head = request.head();
  if (!request.exchange.from_unix_socket()) CO_CHECK(check_caller(head, *shared.config.load()));
  CO_TRY(request.route, find_route(head.target));
  const Api api = request.route.api;
  // A preflight carries no key: the browser asks by itself whether it may.
  if (!request.exchange.from_unix_socket() && needs_key(api) && !is_preflight(head)) {
    auto name = check_key(head, *shared.config.load());
    if (!name.ok()) co_return std::move(name).error();
    request.key_name = *name;
  }
  Result<void> outcome;
  if (api == Api::admin) {
    if (!request.exchange.from_unix_socket() || !shared.admin) {
      co_return Error{ErrorCode::not_found, "/admin is served on the daemon's Unix socket"};
    }
    co_await shared.admin(request.exchange);
  } else if (is_preflight(head) || (head.method == "OPTIONS" && api != Api::upstream)) {
    outcome = co_await answer_options(request, allowed_methods(api));
  } else if (!method_allowed(api, head.method)) {
    request.answer.allow(allowed_methods(api));
    outcome = Error{ErrorCode::method_not_allowed,
                    fmt::format("{} takes {}", head.path(), allowed_methods(api))};
  } else {
    outcome = co_await answer_endpoint(request);
  }
  co_return outcome;
}

}  // namespace omni::gateway
