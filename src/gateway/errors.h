// Error bodies of the public API.
#pragma once

#include <string>
#include <string_view>

namespace omni::gateway {

// The engine's own error answer as the client sees it: an OpenAI error object goes through as it
// is, anything else is quoted in one with origin "engine".
std::string engine_error_body(int status, std::string_view body, std::string_view request_id);

}  // namespace omni::gateway
