#include "http/error_body.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/text.h"

namespace omni::http {
namespace {

namespace json = boost::json;

// What a status alone says. 5xx from something that is not omni is the engine's doing.
ErrorCode code_of_status(int status) {
  switch (status) {
    case 403:
      return ErrorCode::permission_denied;
    case 404:
      return ErrorCode::not_found;
    case 405:
      return ErrorCode::method_not_allowed;
    case 413:
      return ErrorCode::body_too_large;
    case 503:
      return ErrorCode::overloaded;
    case 504:
      return ErrorCode::engine_timeout;
    default:
      return status < 500 ? ErrorCode::invalid_request : ErrorCode::engine_protocol;
  }
}

std::string_view text_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

}  // namespace

std::string error_body(const Error& error, std::string_view request_id, std::string_view param,
                       std::optional<Origin> origin) {
  const ErrorInfo& info = error.info();
  json::object object{{"message", to_utf8(error.message)},
                      {"type", info.openai_type},
                      {"code", info.name},
                      {"param", nullptr},
                      {"origin", to_string(origin.value_or(info.origin))}};
  if (!param.empty()) object["param"] = to_utf8(param);
  if (!request_id.empty()) object["request_id"] = request_id;
  return json::serialize(json::object{{"error", std::move(object)}});
}

Error parse_error_body(int status, std::string_view body) {
  Error error{code_of_status(status), {}};
  boost::system::error_code broken;
  const json::value document = json::parse(body, broken);
  if (const json::object* root = broken ? nullptr : document.if_object()) {
    const json::value* inner = root->if_contains("error");
    const json::object* object = inner == nullptr ? nullptr : inner->if_object();
    if (object != nullptr) {
      error.message = text_at(*object, "message");
      if (const ErrorInfo* info = find_error(text_at(*object, "code"))) error.code = info->code;
    } else {
      error.message = text_at(*root, inner != nullptr ? "error" : "message");
    }
  }
  if (error.message.empty()) error.message = fmt::format("the answer had status {}", status);
  return error;
}

}  // namespace omni::http
