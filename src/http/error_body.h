// The error object of the OpenAI dialect, which is also the admin API's: rendered by servers, read
// back by the command line.
//
//   {"error": {"message": "...", "type": "server_error", "code": "out_of_memory", "param": null,
//              "origin": "omni", "request_id": "..."}}
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace omni::http {

// `request_id` is left out when empty; `param` names the member of the request that is wrong.
// `origin` is the code's own unless given. Broken UTF-8 in the texts becomes '?'.
std::string error_body(const Error& error, std::string_view request_id = {},
                       std::string_view param = {}, std::optional<Origin> origin = std::nullopt);

// The error that a response of status 400 or more means. A body that is not omni's (an engine's
// own, a proxy's page) gives a code by the status and what message there is.
Error parse_error_body(int status, std::string_view body);

}  // namespace omni::http
