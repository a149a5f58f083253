#include "gateway/api_keys.h"

#include "base/sha256.h"

namespace omni::gateway {
namespace {

constexpr std::string_view kAuthorization = "authorization";
constexpr std::string_view kApiKey = "x-api-key";

// Empty: there is none.
std::string_view key_in(const http::RequestHead& head) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view value = head.headers.get(kAuthorization);
  const bool bearer =
      value.size() > kScheme.size() && http::iequals(value.substr(0, kScheme.size()), kScheme);
  if (!bearer) return head.headers.get(kApiKey);
  value.remove_prefix(kScheme.size());
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

}  // namespace

Result<std::string_view> check_key(const http::RequestHead& head, const NodeConfig& config) {
  if (config.keys.empty()) return std::string_view();
  const std::string_view key = key_in(head);
  if (key.empty()) {
    return Error{ErrorCode::invalid_api_key,
                 "this server wants a key: send `Authorization: Bearer KEY` or `x-api-key: KEY`"};
  }
  const std::string digest = sha256_hex(key);
  // All are looked at, whichever fits.
  const ApiKey* found = nullptr;
  for (const ApiKey& known : config.keys) {
    if (equal_in_constant_time(known.sha256, digest)) found = &known;
  }
  if (found != nullptr) return std::string_view(found->name);
  return Error{ErrorCode::invalid_api_key, "the key is not one that this server knows"};
}

bool needs_key(Api api) { return api != Api::health && api != Api::livez && api != Api::readyz; }

bool is_key_header(std::string_view name) {
  return http::iequals(name, kAuthorization) || http::iequals(name, kApiKey);
}

}  // namespace omni::gateway
