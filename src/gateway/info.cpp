#include "gateway/info.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace omni::gateway {
namespace {

namespace json = boost::json;

constexpr std::string_view kJson = "application/json";
// The control loop ticks many times a second; a stall this long means that nothing waits its turn
// any more.
constexpr Duration kStalled = std::chrono::seconds(2);

json::object describe(const ModelRoute& model) {
  return {{"id", model.name},   {"object", "model"},    {"created", model.created},
          {"owned_by", "omni"}, {"state", model.state}, {"task", to_string(model.task)}};
}

// Empty for a model without a process.
std::string_view running_state(std::string_view state) {
  if (state == "stopped" || state == "provisioning" || state == "failed") return {};
  if (state == "resident") return "ready";
  if (state == "draining" || state == "stopping") return "stopping";
  return state;
}

std::string_view not_ready(const Shared& shared) {
  if (shared.draining.load(std::memory_order_relaxed)) return "draining";
  const auto tick = shared.control_tick.load(std::memory_order_relaxed);
  if (Clock::now() - TimePoint(Duration(tick)) > kStalled) return "control loop stalled";
  return {};
}

}  // namespace

asio::awaitable<Result<void>> answer_root(Request& request) {
  return request.answer.respond(200, "text/plain; charset=utf-8",
                                "omni " OMNI_VERSION
                                "\nModels: GET /v1/models. The API is OpenAI's, below /v1; "
                                "POST /ai/run/{model} takes a model's own form.\n");
}

asio::awaitable<Result<void>> answer_alive(Request& request) {
  return request.answer.respond(200, std::string(kJson), R"({"status":"ok"})");
}

asio::awaitable<Result<void>> answer_readyz(Request& request) {
  const std::string_view reason = not_ready(request.services.shared);
  const std::string body = reason.empty()
                               ? R"({"status":"ok"})"
                               : fmt::format(R"({{"status":"unavailable","reason":"{}"}})", reason);
  auto answered =
      co_await request.answer.respond(reason.empty() ? 200 : 503, std::string(kJson), body);
  co_return answered;
}

asio::awaitable<Result<void>> answer_metrics(Request& request) {
  const std::string text = request.services.shared.metrics->render();
  std::string type = "text/plain; version=0.0.4; charset=utf-8";
  auto answered = co_await request.answer.respond(200, std::move(type), text);
  co_return answered;
}

asio::awaitable<Result<void>> answer_running(Request& request) {
  json::array running;
  for (const auto& [name, model] : request.services.admission.routes().models) {
    const std::string_view state = running_state(model->state);
    if (name != model->name || state.empty()) continue;
    running.push_back(json::object{{"model", name}, {"state", state}});
  }
  const std::string body = json::serialize(json::object{{"running", std::move(running)}});
  auto answered = co_await request.answer.respond(200, std::string(kJson), body);
  co_return answered;
}

asio::awaitable<Result<void>> answer_models(Request& request) {
  json::array data;
  for (const auto& [name, model] : request.services.admission.routes().models) {
    if (name == model->name) data.push_back(describe(*model));  // Not once more for each alias.
  }
  const std::string body =
      json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}});
  auto answered = co_await request.answer.respond(200, std::string(kJson), body);
  co_return answered;
}

asio::awaitable<Result<void>> answer_model(Request& request) {
  CO_CHECK(request.choose_model(request.route.model));
  const std::string body = json::serialize(describe(*request.model));
  auto answered = co_await request.answer.respond(200, std::string(kJson), body);
  co_return answered;
}

asio::awaitable<Result<void>> answer_options(Request& request, std::string_view methods) {
  const std::string_view shown =
      methods.empty() ? "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" : methods;
  http::ResponseHead head;
  head.status = 204;
  head.headers.add("allow", std::string(shown));
  if (request.head().headers.has("origin")) {
    head.headers.add("access-control-allow-methods", std::string(shown));
    const std::string_view wanted = request.head().headers.get("access-control-request-headers");
    head.headers.add("access-control-allow-headers",
                     wanted.empty() ? "content-type, authorization" : std::string(wanted));
    head.headers.add("access-control-max-age", "600");
  }
  auto answered = co_await request.answer.respond(std::move(head), {});
  co_return answered;
}

}  // namespace omni::gateway
