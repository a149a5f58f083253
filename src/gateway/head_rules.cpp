#include "gateway/head_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace omni::gateway {
namespace {

// "example.org:80" → "example.org", "[::1]:80" → "::1".
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  return host.substr(0, host.find(':'));
}

bool is_loopback_address(std::string_view host) {
  const bool dotted_digits = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "::1" || (host.starts_with("127.") && dotted_digits);
}

bool is_loopback_name(std::string_view host) {
  constexpr std::string_view kSuffix = ".localhost";
  return is_loopback_address(host) || http::iequals(host, "localhost") ||
         (host.size() > kSuffix.size() &&
          http::iequals(host.substr(host.size() - kSuffix.size()), kSuffix));
}

bool listens_on_loopback_alone(const NodeConfig& config) {
  return std::ranges::all_of(config.listen,
                             [](const Listen& l) { return is_loopback_address(l.host); });
}

bool in_list(std::string_view origin, const NodeConfig& config) {
  return std::ranges::any_of(config.cors_origins, [&](const std::string& allowed) {
    return allowed == "*" || http::iequals(allowed, origin);
  });
}

// The page came from this daemon. Trusted only where the Host itself was checked.
bool same_origin(std::string_view origin, std::string_view host) {
  return origin.starts_with("http://") && http::iequals(origin.substr(7), host);
}

}  // namespace

Result<void> check_caller(const http::RequestHead& head, const NodeConfig& config) {
  const std::string_view host = head.headers.get("host");
  const bool loopback = listens_on_loopback_alone(config);
  if (loopback && !host.empty() && !is_loopback_name(host_name(host))) {
    return Error{ErrorCode::forbidden_origin,
                 fmt::format("Host \"{}\" is not a name of this machine's loopback interface; "
                             "call by localhost or 127.0.0.1",
                             host)};
  }
  if (!head.headers.has("origin")) return {};
  const std::string_view origin = head.headers.get("origin");
  if (in_list(origin, config) || (loopback && same_origin(origin, host))) return {};
  return Error{ErrorCode::forbidden_origin,
               fmt::format("Origin \"{}\" is not allowed: add it to cors_origins", origin)};
}

std::string allowed_origin(const http::RequestHead& head, const NodeConfig& config) {
  const std::string_view origin = head.headers.get("origin");
  return !origin.empty() && in_list(origin, config) ? std::string(origin) : std::string();
}

bool is_preflight(const http::RequestHead& head) {
  return head.method == "OPTIONS" && head.headers.has("origin") &&
         head.headers.has("access-control-request-method");
}

}  // namespace omni::gateway
