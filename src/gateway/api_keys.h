// Who may call. A key comes as `Authorization: Bearer KEY` or as `x-api-key: KEY`, and is known
// here by its SHA-256 alone.
#pragma once

#include <string_view>

#include "base/result.h"
#include "config/node_config.h"
#include "gateway/router.h"
#include "http/message.h"

namespace omni::gateway {

// The name of the key, empty where none is needed; or invalid_api_key. The name lives as long as
// `config`.
Result<std::string_view> check_key(const http::RequestHead& head, const NodeConfig& config);

// Not for the probes of load balancers, which have no secrets.
bool needs_key(Api api);

// A header that may carry a key: engines do not get it.
bool is_key_header(std::string_view name);

}  // namespace omni::gateway
