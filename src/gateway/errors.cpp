#include "gateway/errors.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/text.h"

namespace omni::gateway {
namespace {

namespace json = boost::json;

constexpr std::size_t kQuotedBytes = 500;  // of an engine's answer: enough for its first lines

std::string render(std::string_view message, std::string_view type, std::string_view code,
                   std::string_view param, Origin origin, std::string_view request_id) {
  json::object error;
  error["message"] = to_utf8(message);
  error["type"] = json::string_view(type);
  error["code"] = json::string_view(code);
  error["param"] = param.empty() ? json::value() : json::value(to_utf8(param));
  error["origin"] = json::string_view(to_string(origin));
  error["request_id"] = json::string_view(request_id);
  json::object body;
  body["error"] = std::move(error);
  return json::serialize(body);
}

bool is_error_object(std::string_view body) {
  boost::system::error_code failure;
  const json::value parsed = json::parse(body, failure);
  return !failure && parsed.is_object() && parsed.get_object().contains("error");
}

}  // namespace

std::string openai_error(const Error& error, std::string_view request_id, std::string_view param) {
  const ErrorInfo& info = error.info();
  return render(error.message, info.openai_type, info.name, param, info.origin, request_id);
}

std::string openai_error(const Error& error, std::string_view request_id) {
  return openai_error(error, request_id, {});
}

std::string engine_error_body(int status, std::string_view body, std::string_view request_id) {
  if (is_error_object(body)) return std::string(body);
  const bool client = status < 500;
  const ErrorInfo& info =
      error_info(client ? ErrorCode::invalid_request : ErrorCode::handler_failed);
  const std::string message =
      body.empty()
          ? fmt::format("the engine answered {} without a body", status)
          : fmt::format("the engine answered {}: {}", status, body.substr(0, kQuotedBytes));
  return render(message, info.openai_type, info.name, {}, Origin::engine, request_id);
}

std::string to_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 1;
    while (length <= 4 && at + length <= text.size() && !is_utf8(text.substr(at, length))) ++length;
    const bool whole = length <= 4 && at + length <= text.size();
    out += whole ? text.substr(at, length) : std::string_view("?");
    at += whole ? length : 1;
  }
  return out;
}

}  // namespace omni::gateway
