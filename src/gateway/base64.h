// Base64 of RFC 4648, with padding.
#pragma once

#include <string>
#include <string_view>

namespace omni::gateway {

std::string base64(std::string_view bytes);

}  // namespace omni::gateway
