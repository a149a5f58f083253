// Error bodies of the public API.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "gateway/gateway.h"

namespace omni::gateway {

// openai_error() with the member of the request that is wrong.
std::string openai_error(const Error& error, std::string_view request_id, std::string_view param);

// The engine's own error answer as the client sees it: an OpenAI error object goes through as it
// is, anything else is quoted in one with origin "engine".
std::string engine_error_body(int status, std::string_view body, std::string_view request_id);

// Well-formed UTF-8: broken bytes become '?'.
std::string to_utf8(std::string_view text);

}  // namespace omni::gateway
