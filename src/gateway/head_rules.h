// Who may call. A port on loopback without keys is open to every web page of the user's browser:
// a page reaches it by its own name that it re-points at 127.0.0.1 (a foreign Host), or directly
// (a foreign Origin). Pure. Exchanges of the Unix socket are exempt: a browser cannot reach it.
#pragma once

#include <string>

#include "base/result.h"
#include "config/node_config.h"
#include "http/message.h"

namespace omni::gateway {

// forbidden_origin, naming what to configure.
Result<void> check_caller(const http::RequestHead& head, const NodeConfig& config);

// An allowed cross-origin caller, or empty: what Access-Control-Allow-Origin answers.
std::string allowed_origin(const http::RequestHead& head, const NodeConfig& config);

// A browser that asks before it sends.
bool is_preflight(const http::RequestHead& head);

}  // namespace omni::gateway
