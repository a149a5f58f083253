#include "gateway/errors.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "http/error_body.h"

namespace omni::gateway {
namespace {

namespace json = boost::json;

constexpr std::size_t kQuotedBytes = 500;  // of an engine's answer: enough for its first lines

bool is_error_object(std::string_view body) {
  boost::system::error_code failure;
  const json::value parsed = json::parse(body, failure);
  return !failure && parsed.is_object() && parsed.get_object().contains("error");
}

}  // namespace

std::string engine_error_body(int status, std::string_view body, std::string_view request_id) {
  if (is_error_object(body)) return std::string(body);
  Error error{status < 500 ? ErrorCode::invalid_request : ErrorCode::handler_failed, {}};
  error.message = body.empty() ? fmt::format("the engine answered {} without a body", status)
                               : fmt::format("the engine answered {}: {}", status,
                                             body.substr(0, kQuotedBytes));
  return http::error_body(error, request_id, {}, Origin::engine);
}

}  // namespace omni::gateway
