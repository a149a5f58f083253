#include "admin/admin.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "admin/streams.h"
#include "base/text.h"
#include "http/error_body.h"

namespace omni::admin {
namespace {

namespace json = boost::json;

constexpr std::size_t kDefaultLogLines = 100;
constexpr std::size_t kMaxLogLines = 1'000'000;  // more than the kept files can hold

using RouteHandler = asio::awaitable<void> (*)(NodeControl& node, http::Exchange& exchange,
                                               std::string model);

struct Route {
  std::string_view method;
  std::string_view path;  // {model} is one segment
  RouteHandler handler;
};

// ---- answers

asio::awaitable<void> respond_json(http::Exchange& exchange, json::object body, int status = 200) {
  http::ResponseHead head{.status = status};
  head.headers.set("Content-Type", "application/json");
  head.headers.set("Cache-Control", "no-store");
  const std::string text = to_utf8(json::serialize(body));
  head.content_length = text.size();
  // A client that left needs no answer.
  [[maybe_unused]] auto sent = co_await exchange.respond(std::move(head), text);
}

template <typename Status>
json::array to_array(const std::vector<Status>& list) {
  json::array array;
  for (const Status& status : list) array.push_back(to_json(status));
  return array;
}

// ---- what requests name

Result<ModelStatus> find_model(std::vector<ModelStatus> models, std::string_view name) {
  std::vector<std::string_view> names;
  for (ModelStatus& model : models) {
    const bool alias = std::ranges::find(model.aliases, name) != model.aliases.end();
    if (model.name == name || alias) return std::move(model);
    names.push_back(model.name);
    names.insert(names.end(), model.aliases.begin(), model.aliases.end());
  }
  const std::string nearest = nearest_name(name, names);
  return Error{ErrorCode::model_not_found,
               nearest.empty()
                   ? fmt::format("there is no model \"{}\"; `omni models` lists them", name)
                   : fmt::format("there is no model \"{}\"; did you mean \"{}\"?", name, nearest)};
}

asio::awaitable<Result<ModelStatus>> find_model(NodeControl& node, std::string name) {
  std::vector<ModelStatus> models = co_await node.models();
  co_return find_model(std::move(models), name);
}

Result<std::uint64_t> number_parameter(const http::RequestHead& request, std::string_view name,
                                       std::uint64_t fallback, std::uint64_t maximum) {
  const std::optional<std::string> text = http::query_parameter(request.query(), name);
  if (!text) return fallback;
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (status != std::errc() || end != text->data() + text->size() || number > maximum) {
    return Error{
        ErrorCode::invalid_request,
        fmt::format("parameter {} is \"{}\": give a number from 0 to {}", name, *text, maximum)};
  }
  return number;
}

Result<bool> flag_parameter(const http::RequestHead& request, std::string_view name) {
  TRY(const std::uint64_t number, number_parameter(request, name, 0, 1));
  return number == 1;
}

// ---- one function per route

asio::awaitable<void> get_status(NodeControl& node, http::Exchange& exchange, std::string) {
  const NodeStatus status = co_await node.status();
  co_await respond_json(exchange, to_json(status));
}

asio::awaitable<void> get_models(NodeControl& node, http::Exchange& exchange, std::string) {
  const std::vector<ModelStatus> models = co_await node.models();
  json::object body{{"models", to_array(models)}};
  co_await respond_json(exchange, std::move(body));
}

asio::awaitable<void> get_model(NodeControl& node, http::Exchange& exchange, std::string name) {
  Result<ModelStatus> model = co_await find_model(node, std::move(name));
  if (model.ok()) {
    co_await respond_json(exchange, to_json(*model));
  } else {
    co_await respond_error(exchange, std::move(model).error());
  }
}

asio::awaitable<void> get_explanation(NodeControl& node, http::Exchange& exchange,
                                      std::string name) {
  Result<ModelExplanation> explanation = co_await node.explain(std::move(name));
  if (explanation.ok()) {
    co_await respond_json(exchange, to_json(*explanation));
  } else {
    co_await respond_error(exchange, std::move(explanation).error());
  }
}

asio::awaitable<void> get_instances(NodeControl& node, http::Exchange& exchange, std::string) {
  const Result<bool> pss = flag_parameter(exchange.request(), "pss");
  if (!pss.ok()) {
    co_await respond_error(exchange, pss.error());
    co_return;
  }
  const std::vector<InstanceStatus> instances = co_await node.instances(*pss);
  json::object body{{"instances", to_array(instances)}};
  co_await respond_json(exchange, std::move(body));
}

using Verb = asio::awaitable<Result<void>> (NodeControl::*)(std::string model);

// Answers with the model as it is after the verb.
asio::awaitable<void> apply(NodeControl& node, http::Exchange& exchange, std::string name,
                            Verb verb) {
  Result<ModelStatus> model = co_await find_model(node, std::move(name));
  if (!model.ok()) {
    co_await respond_error(exchange, std::move(model).error());
    co_return;
  }
  Result<void> done = co_await (node.*verb)(model->name);
  if (!done.ok()) {
    co_await respond_error(exchange, std::move(done).error());
    co_return;
  }
  co_await get_model(node, exchange, model->name);
}

asio::awaitable<void> post_load(NodeControl& node, http::Exchange& exchange, std::string name) {
  return apply(node, exchange, std::move(name), &NodeControl::load);
}

// Also of a model that has been removed, and still answers.
asio::awaitable<void> post_stop(NodeControl& node, http::Exchange& exchange, std::string name) {
  const Result<ModelStatus> model = co_await find_model(node, name);
  if (model.ok()) {
    co_await apply(node, exchange, std::move(name), &NodeControl::stop);
    co_return;
  }
  const Result<void> stopped = co_await node.stop(name);
  if (stopped.ok()) {
    json::object body{{"name", name}, {"state", "stopped"}};
    co_await respond_json(exchange, std::move(body));
  } else {
    co_await respond_error(exchange, model.error());
  }
}

asio::awaitable<Result<LogRequest>> log_request(NodeControl& node, const http::RequestHead& request,
                                                std::string name) {
  CO_TRY(const std::uint64_t lines,
         number_parameter(request, "lines", kDefaultLogLines, kMaxLogLines));
  CO_TRY(const bool follow, flag_parameter(request, "follow"));
  CO_TRY(ModelStatus model, co_await find_model(node, std::move(name)));
  co_return LogRequest{node.log_path(model.name), lines, follow};
}

asio::awaitable<void> get_logs(NodeControl& node, http::Exchange& exchange, std::string name) {
  Result<LogRequest> request = co_await log_request(node, exchange.request(), std::move(name));
  if (request.ok()) {
    co_await stream_log(node, exchange, *std::move(request));
  } else {
    co_await respond_error(exchange, std::move(request).error());
  }
}

asio::awaitable<void> get_events(NodeControl& node, http::Exchange& exchange, std::string) {
  constexpr std::uint64_t kAnyId = std::numeric_limits<std::int64_t>::max();
  Result<std::uint64_t> after = number_parameter(exchange.request(), "after", 0, kAnyId);
  if (!after.ok()) {
    co_await respond_error(exchange, std::move(after).error());
    co_return;
  }
  // Sent by an EventSource that reconnects. What is not a number is not from here: from the start.
  const std::string_view last = exchange.request().headers.get("Last-Event-ID");
  std::from_chars(last.data(), last.data() + last.size(), *after);
  co_await stream_events(node, exchange, *after);
}

asio::awaitable<void> post_reload(NodeControl& node, http::Exchange& exchange, std::string) {
  Result<ReloadReport> report = co_await node.reload();
  if (report.ok()) {
    co_await respond_json(exchange, to_json(*report));
  } else {
    co_await respond_error(exchange, std::move(report).error());
  }
}

asio::awaitable<void> post_shutdown(NodeControl& node, http::Exchange& exchange, std::string) {
  json::object body{{"state", "stopping"}};
  co_await respond_json(exchange, std::move(body), 202);
  node.shut_down();
}

constexpr Route kRoutes[] = {
    {"GET", "/admin/status", get_status},
    {"GET", "/admin/models", get_models},
    {"GET", "/admin/models/{model}", get_model},
    {"GET", "/admin/models/{model}/explain", get_explanation},
    {"POST", "/admin/models/{model}/load", post_load},
    {"POST", "/admin/models/{model}/stop", post_stop},
    {"POST", "/admin/models/{model}/unload", post_stop},
    {"GET", "/admin/models/{model}/logs", get_logs},
    {"GET", "/admin/instances", get_instances},
    {"GET", "/admin/events", get_events},
    {"POST", "/admin/reload", post_reload},
    {"POST", "/admin/shutdown", post_shutdown},
};

// The {model} segment of a path that has this pattern's form; empty for a pattern without one.
std::optional<std::string_view> match(std::string_view pattern, std::string_view path) {
  constexpr std::string_view kSegment = "{model}";
  const std::size_t at = pattern.find(kSegment);
  if (at == pattern.npos) return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view head = pattern.substr(0, at);
  const std::string_view tail = pattern.substr(at + kSegment.size());
  if (path.size() <= head.size() + tail.size() || !path.starts_with(head) ||
      !path.ends_with(tail)) {
    return std::nullopt;
  }
  const std::string_view segment =
      path.substr(head.size(), path.size() - head.size() - tail.size());
  return segment.find('/') == segment.npos ? std::optional(segment) : std::nullopt;
}

// `allow` is the header of a 405, or empty.
asio::awaitable<void> send_error(http::Exchange& exchange, Error error, std::string_view allow) {
  http::ResponseHead head{.status = error.info().http_status};
  head.headers.set("Content-Type", "application/json");
  if (!allow.empty()) head.headers.set("Allow", std::string(allow));
  const std::string body = http::error_body(error);
  head.content_length = body.size();
  [[maybe_unused]] auto sent = co_await exchange.respond(std::move(head), body);
}

}  // namespace

asio::awaitable<void> respond_error(http::Exchange& exchange, Error error) {
  return send_error(exchange, std::move(error), {});
}

asio::awaitable<void> handle(NodeControl& node, http::Exchange& exchange) {
  const http::RequestHead& request = exchange.request();
  for (const Route& route : kRoutes) {
    const std::optional<std::string_view> segment = match(route.path, request.path());
    if (!segment) continue;
    if (route.method != request.method) {
      Error error{ErrorCode::method_not_allowed,
                  fmt::format("{} takes {}", request.path(), route.method)};
      co_await send_error(exchange, std::move(error), route.method);
      co_return;
    }
    std::optional<std::string> name = http::percent_decode(*segment);
    if (!name) {
      Error error{ErrorCode::invalid_request, "the path has a broken %-escape"};
      co_await respond_error(exchange, std::move(error));
      co_return;
    }
    co_await route.handler(node, exchange, *std::move(name));
    co_return;
  }
  Error error{ErrorCode::not_found, fmt::format("the admin API has no path {}", request.path())};
  co_await respond_error(exchange, std::move(error));
}

}  // namespace omni::admin
